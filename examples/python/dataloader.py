"""The workers of a DataLoader read a dataset that is in memory once, whether they are forked or spawned:

shared-tensor-server &
python examples/python/dataloader.py
"""

import os
import pathlib
import re
from collections.abc import Iterable
from typing import Any

import torch
from shared_tensor import NamedTensors, publish
from torch.utils.data import DataLoader, Dataset


class Images(Dataset[dict[str, Any]]):
    """Images that are published as a set with the members "images" and "labels"."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        self.read: Any = None

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.read is None:  # the first image in this process
            self.before = memory_mib({os.getpid()}, "Anon")
            self.read = NamedTensors().get(self.name)
        image, label = self.read["images"][index], self.read["labels"][index]
        return {"image": image, "label": label, "process": os.getpid(), "memory before": self.before}


def memory_mib(processes: Iterable[int], kind: str) -> float:
    """Shared ("Shmem") or own ("Anon") memory. Memory that n processes share counts as one n-th in each of them."""
    texts = [pathlib.Path(f"/proc/{process}/smaps_rollup").read_text() for process in processes]
    return sum(map(int, re.findall(rf"^Pss_{kind}: +(\d+)", "".join(texts), re.MULTILINE))) / 1024


if __name__ == "__main__":
    labels = torch.arange(10_000) % 10
    images = torch.randint(0, 256, (10_000, 3, 96, 96), dtype=torch.uint8)
    published = publish("images", {"images": images, "labels": labels})
    pixels, sum_of_labels = images.sum(dtype=torch.int64), labels.sum()
    print(f"published {published.bytes / 2**20:.0f} MiB", flush=True)
    del images, labels

    for method in "fork", "spawn":
        loader = DataLoader(
            Images("images", 10_000),
            batch_size=50,
            num_workers=2,
            shuffle=True,
            multiprocessing_context=method,
            persistent_workers=True,
        )
        seen_pixels, seen_labels, workers = 0, 0, {}
        for batch in loader:
            seen_pixels += batch["image"].sum(dtype=torch.int64)
            seen_labels += batch["label"].sum()
            workers |= zip(batch["process"].tolist(), batch["memory before"].tolist(), strict=True)
        right = bool(seen_pixels == pixels and seen_labels == sum_of_labels)
        shared, own = memory_mib(workers, "Shmem"), memory_mib(workers, "Anon") - sum(workers.values())
        print(f"{method}: {len(workers)} workers read all images: {right}, {shared:.0f} MiB shared, {own:.0f} MiB own")
