"""Spans of OpenTelemetry, if the program has imported opentelemetry.trace. Imports nothing that the program has not
imported."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


def in_use() -> bool:
    """Whether the program uses OpenTelemetry."""
    return "opentelemetry.trace" in sys.modules


def traceparent() -> str:
    """The current span in the form of W3C Trace Context; "" without one."""
    return _text(sys.modules["opentelemetry.trace"].get_current_span()) if in_use() else ""


def _text(span: Any) -> str:
    context = span.get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags) & 255:02x}"


@contextlib.contextmanager
def client_span(method: str) -> Iterator[str]:
    """A span of the kind CLIENT; an exception of its body is its error. Yields its traceparent; "" without a tracer."""
    if not in_use():
        yield ""
        return
    trace: Any = sys.modules["opentelemetry.trace"]
    attributes = {"rpc.system": "jsonrpc", "rpc.jsonrpc.version": "2.0", "rpc.method": method}
    tracer = trace.get_tracer("shared_tensor")
    with tracer.start_as_current_span(method, kind=trace.SpanKind.CLIENT, attributes=attributes) as span:
        yield _text(span)


@contextlib.contextmanager
def called_by(traceparent: str) -> Iterator[None]:
    """Spans that its body makes are below the span of the call that it works for."""
    if not (traceparent and in_use()):
        yield
        return
    trace: Any = sys.modules["opentelemetry.trace"]
    context: Any = sys.modules["opentelemetry.context"]  # opentelemetry.trace imports it
    _, trace_id, span_id, flags = traceparent.split("-")
    caller = trace.SpanContext(int(trace_id, 16), int(span_id, 16), True, trace.TraceFlags(int(flags, 16)))
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(caller)))
    try:
        yield
    finally:
        context.detach(token)
