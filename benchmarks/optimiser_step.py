"""Weights in bfloat16 before and after a step of an optimiser, for `across_hosts --deltas FOLDER`: `before.safetensors`;
`scattered.safetensors`, after a step of AdamW that changes about 1 % of the elements, all over the set, since most updates
are smaller than half of an element's last bit; `local.safetensors`, after a step of SGD with the gradients of an embedding
of which 1 % of the rows were used. Needs torch, and 6 times the size in memory.

    python benchmarks/optimiser_step.py FOLDER [--mib 1024]
"""

from __future__ import annotations

import argparse
import json
import pathlib

import torch

COLUMNS = 2048


def save(path: pathlib.Path, members: dict[str, torch.Tensor]) -> None:
    header: dict[str, object] = {}
    offset = 0
    for name, tensor in members.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in members.values():
            file.write(memoryview(tensor.detach().contiguous().view(torch.int16).numpy()).cast("B"))


def changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> float:
    differ = sum(int((before[name] != after[name]).sum()) for name in before)
    return differ / sum(tensor.numel() for tensor in before.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--mib", type=int, default=1024)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    rows = (options.mib << 20) // (32 * 2 * COLUMNS)
    before = {f"layers.{i:02}": (0.02 * torch.randn(rows, COLUMNS)).to(torch.bfloat16) for i in range(32)}
    save(options.folder / "before.safetensors", before)

    after = {}
    for name, tensor in before.items():
        parameter = torch.nn.Parameter(tensor.clone())
        parameter.grad = torch.randn(rows, COLUMNS).to(torch.bfloat16)
        torch.optim.AdamW([parameter], lr=7e-7, weight_decay=0).step()
        after[name] = parameter.detach()
    save(options.folder / "scattered.safetensors", after)
    print(f"scattered: {100 * changed(before, after):.2f} % of the elements changed")

    after = dict(before)
    used = max(32 * rows // 100, 1)
    for name in list(before)[: -(-used // rows)]:
        parameter = torch.nn.Parameter(before[name].clone())
        parameter.grad = torch.zeros_like(parameter)
        parameter.grad[: min(used, rows)] = 1.0
        torch.optim.SGD([parameter], lr=0.1).step()
        after[name] = parameter.detach()
        used -= min(used, rows)
    save(options.folder / "local.safetensors", after)
    print(f"local: {100 * changed(before, after):.2f} % of the elements changed")


if __name__ == "__main__":
    main()
