"""A FastAPI application. All its workers share one model:

pip install fastapi gunicorn uvicorn-worker
shared-tensor-server &
cd examples/python
python fastapi_app.py     # publishes the model
gunicorn fastapi_app:app --workers 4 --worker-class uvicorn_worker.UvicornWorker
curl -d '[1, 2, 3]' -H 'Content-Type: application/json' http://127.0.0.1:8000/predict
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import torch
from fastapi import FastAPI
from shared_tensor import attach, publish


def make_model() -> torch.nn.Module:
    """A model with weights of 208 MiB."""
    return torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(13)))


with torch.device("meta"):  # parameters without memory
    model = make_model()


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    with attach(model, "fastapi_app") as attached:
        attached.watch()  # when a new model is published, all workers take it
        model(torch.zeros(2048))  # the first request is as fast as the others
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/predict")
def predict(numbers: list[float]) -> dict[str, float | int]:
    """The mean output of the model for up to 2048 numbers."""
    x = torch.zeros(2048)
    x[: len(numbers)] = torch.tensor(numbers)
    with torch.inference_mode():
        return {"mean": model(x).mean().item(), "worker": os.getpid()}


if __name__ == "__main__":
    torch.manual_seed(0)
    published = publish("fastapi_app", make_model().state_dict())
    print(f"published version {published.version}, {published.bytes / 2**20:.0f} MiB")
