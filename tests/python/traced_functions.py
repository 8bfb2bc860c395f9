"""Functions for test_traces.py. This process makes spans, but sends none: its server does."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from shared_tensor import Client, SharedTensorProvider

provider = SharedTensorProvider()
trace.set_tracer_provider(TracerProvider())


def made_here() -> dict[str, str]:
    with trace.get_tracer("functions").start_as_current_span("inner") as span:
        assert isinstance(span, ReadableSpan)
        parent = format(span.parent.span_id, "016x") if span.parent else ""
        return {"parent": parent, "trace": format(span.get_span_context().trace_id, "032x")}


@provider.share()
def traced() -> dict[str, str]:
    return made_here()


@provider.share()
async def traced_async() -> dict[str, str]:
    return made_here()


@provider.share()
def add(a: float, b: float) -> float:
    return a + b


@provider.share()
def subtract(a: float, b: float) -> float:
    return a - b


@provider.share()
def multiply(a: float, b: float) -> float:
    return a * b


@provider.share()
def count(up_to: int) -> Iterator[int]:
    yield from range(up_to)


@provider.share()
def fail() -> None:
    raise ValueError("it fails")


@provider.share(name="next")
def next_one() -> int:
    return 7


@provider.share()
def pass_on(url: str) -> int:
    with Client(url) as client:
        return int(client.call("next"))
