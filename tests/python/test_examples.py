"""The programs of examples/python, each started as a user starts it: in processes of their own."""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Process

import shared_tensor

REPOSITORY = pathlib.Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "examples/python"
SECONDS = 300  # a program starts up to four processes, and each imports torch


def needs(*packages: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed in this environment")
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 1):
        pytest.skip("the examples need torch 2.1")
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        pytest.skip(f"not installed in this environment: {', '.join(missing)}")


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-B", program, *map(str, arguments)]
    return subprocess.Popen(command, cwd=EXAMPLES, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def output_of(process: subprocess.Popen[str]) -> str:
    try:
        output, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return output


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a shared-tensor-server."""
    program = pathlib.Path(shared_tensor.__file__).parent / "bin/shared-tensor-server"
    ready = tmp_path_factory.mktemp("daemon") / "url"
    command = [str(program), "--port", "0", "--ready-file", str(ready)]
    process = Process(command, lambda: ready.read_text().split("\n")[0] if ready.exists() else "", ready.parent)
    yield process.url
    assert process.stop() == 0


@pytest.fixture
def server(daemon: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The server that programs find by themselves."""
    monkeypatch.setenv("SHARED_TENSOR_URL", daemon)
    return daemon


def test_two_processes_have_one_model_in_memory(server: str) -> None:
    needs()
    output = output_of(start("shared_model.py"))
    size = int(re.findall(r"^published: .* (\d+) MiB$", output, re.MULTILINE)[0])
    results = re.findall(r"output (\S+),", output)
    added = [int(mib) for mib in re.findall(r"^process \d: .* (\d+) MiB added$", output, re.MULTILINE)]
    assert len(results) == 3 and len(set(results)) == 1, output
    # A page counts for the processes that use it, for each in part. The server keeps the memory, but uses no page of
    # it, so each of the two has a half. Copies would add the whole size twice.
    assert len(added) == 2 and 0.5 * size < sum(added) < 1.1 * size, output


def test_readers_see_whole_versions(server: str) -> None:
    needs()
    output = output_of(start("weights_swap.py"))
    readers = re.findall(r"^reader \d: (\d+) calls, (\d+) different steps, (\d+) mixtures$", output, re.MULTILINE)
    assert len(readers) == 2, output
    assert all(int(calls) > 1 and int(steps) > 1 and mixtures == "0" for calls, steps, mixtures in readers), output


def test_workers_of_a_dataloader_have_one_dataset_in_memory(server: str) -> None:
    needs()
    output = output_of(start("dataloader.py"))
    size = int(re.findall(r"^published (\d+) MiB$", output, re.MULTILINE)[0])
    lines = re.findall(r"^(\w+): (\d) workers read all images: (\w+), (\d+) MiB shared, (-?\d+) MiB own$", output, re.M)
    assert [line[:3] for line in lines] == [("fork", "2", "True"), ("spawn", "2", "True")], output
    # The server uses no page of the memory, so the workers together have all of it, and their batches. A copy in each
    # worker would be twice the size, as memory of its own.
    assert all(0.4 * size < int(shared) < 1.1 * size and int(own) < 0.5 * size for *_, shared, own in lines), output


# The same as the example in C++ finds.
SPEECH = """\
Front_Center.wav: 2 stretches of speech
    0.10 s to   0.51 s
    0.80 s to   1.44 s
Noise.wav: 0 stretches of speech
"""


def test_speech_is_found_for_two_callers_at_once(start_provider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    needs()
    folder = subprocess.check_output([REPOSITORY / "scripts/fetch_deps", "--print-dir"], text=True).strip()
    model = pathlib.Path(folder) / "silero_vad/silero_vad.jit"
    recordings = [pathlib.Path(folder) / "recordings" / name for name in ("Front_Center.wav", "Noise.wav")]
    if not all(file.exists() for file in [model, *recordings]):
        pytest.skip(f"the model and the recordings are not in {folder}: run scripts/fetch_deps")
    monkeypatch.setenv("VOICE_ACTIVITY_MODEL", str(model))
    provider = start_provider("voice_activity:provider", inside=EXAMPLES)
    monkeypatch.setenv("SHARED_TENSOR_URL", provider.url)
    callers = [start("voice_activity.py", *recordings) for _ in range(2)]
    assert [output_of(caller) for caller in callers] == [SPEECH, SPEECH]
    assert provider.stop() == 0


def test_the_nearest_sentence_comes_first(start_provider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("wordllama")
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer
    from wordllama.inference import WordLlamaInference

    provider = start_provider("embeddings:provider", inside=EXAMPLES)
    monkeypatch.setenv("SHARED_TENSOR_URL", provider.url)
    sentences = ["I forgot my password.", "The train to Bern is late.", "How can I log in again?"]
    output = output_of(start("embeddings.py", *sentences))

    package = pathlib.Path(sys.modules["wordllama"].__file__ or "").parent
    tokenizer = Tokenizer.from_file(str(package / "tokenizers/l2_supercat_tokenizer_config.json"))
    weights = load_file(package / "weights/l2_supercat_256.safetensors")["embedding.weight"]
    question, train, login = WordLlamaInference(weights, tokenizer).embed(sentences, norm=True)
    assert output == f"{question @ login:5.2f}  {sentences[2]}\n{question @ train:5.2f}  {sentences[1]}\n"
    assert provider.stop() == 0


# ---- FastAPI under gunicorn

TINY = """
import fastapi_app, torch
fastapi_app.model = torch.nn.Linear(2048, 1, device="meta")
app = fastapi_app.app
"""


@contextlib.contextmanager
def gunicorn(application: str, folder: pathlib.Path) -> Iterator[tuple[str, list[int]]]:
    """The application with four workers that are ready: its URL, and the ids of the workers."""
    command = [sys.executable, "-B", "-m", "gunicorn", application, "--bind", "127.0.0.1:0", "--workers", "4"]
    command += ["--worker-class", "uvicorn_worker.UvicornWorker", "--timeout", str(SECONDS)]
    paths = f"{EXAMPLES},{folder}"
    process = subprocess.Popen([*command, "--pythonpath", paths], cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    log = ""
    try:
        while log.count("Application startup complete") < 4:
            line = process.stderr.readline()
            log += line
            assert line and "Traceback" not in line, log + process.stderr.read()
        yield (
            re.findall(r"Listening at: (\S+)", log)[0],
            [int(worker) for worker in re.findall(r"Booting worker with pid: (\d+)", log)],
        )
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()


def predict(url: str) -> dict[str, Any]:
    request = urllib.request.Request(f"{url}/predict", b"[1, 2, 3]", {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        body: dict[str, Any] = json.loads(answer.read())
        return body


def pss_mib(process: int) -> float:
    text = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text()
    return int(re.findall(r"^Pss: +(\d+)", text, re.MULTILINE)[0]) / 1024


def measure(application: str, folder: pathlib.Path) -> tuple[set[float], float]:
    """The different answers to 40 requests, and the memory of all workers after them."""
    with gunicorn(application, folder) as (url, workers):
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(predict, [url] * 40))
        assert len(workers) == 4 and {answer["worker"] for answer in answers} <= set(workers)
        return {answer["mean"] for answer in answers}, sum(map(pss_mib, workers))


def test_four_workers_of_a_web_application_share_one_model(server: str, tmp_path: pathlib.Path) -> None:
    needs("fastapi", "gunicorn", "uvicorn_worker")
    import torch

    (tmp_path / "tiny.py").write_text(TINY)
    shared_tensor.publish("fastapi_app", torch.nn.Linear(2048, 1).state_dict())
    _, empty = measure("tiny:app", tmp_path)

    size = int(re.findall(r"(\d+) MiB$", output_of(start("fastapi_app.py")))[0])
    means, full = measure("fastapi_app:app", tmp_path)

    torch.manual_seed(0)
    local = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(13)))
    x = torch.zeros(2048)
    x[:3] = torch.tensor([1.0, 2.0, 3.0])
    assert means == {local(x).mean().item()}
    print(f"4 workers: {full:.0f} MiB; without a model: {empty:.0f} MiB; the model: {size} MiB")
    # The server has the memory as well: four fifths are in the workers.
    assert 0.7 * size < full - empty <= 1.1 * size


# ---- the notebook


def text_of(cell: dict[str, Any]) -> str:
    """What a cell shows."""
    texts: list[str] = []
    for output in cell.get("outputs", []):
        texts += output.get("text", []) + output.get("data", {}).get("text/html", [])
        texts += output.get("data", {}).get("text/plain", [])
    return "".join(texts)


def test_the_notebook_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("nbconvert", "ipykernel")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    command = ["--to", "notebook", "--execute", "--output-dir", tmp_path, EXAMPLES / "notebook.ipynb"]
    output_of(start("-m", "nbconvert", *command))
    cells = {cell["id"]: text_of(cell) for cell in json.loads((tmp_path / "notebook.ipynb").read_text())["cells"]}
    assert "project(x: " in cells["client"] and "Rows of x, projected by w." in cells["client"]
    assert "[1., 1., 1.]" in cells["call"] and "bytes_copied" in cells["call"]
    assert "slope 3.00, offset 1.00" in cells["task"] and "completed" in cells["task"]
    assert "same output: True" in cells["weights"]
    assert cells["stop"] == "the server ended with 0\n"
