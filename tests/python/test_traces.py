"""Spans: those of the server in OTLP, held against OpenTelemetry's own classes, and those of OpenTelemetry's package in
clients and functions. Skipped where that package is missing."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Process, until

from shared_tensor import Client
from shared_tensor.async_client import AsyncClient
from shared_tensor.errors import FunctionFailed

pytest.importorskip("opentelemetry.sdk.trace")
pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

from google.protobuf.json_format import ParseDict
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Collector:
    """Takes OTLP over HTTP in its JSON form. A request that the protocol does not allow is an error of the test."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.errors: list[Exception] = []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                try:
                    assert self.path == "/v1/traces"
                    assert self.headers["Content-Type"] == "application/json"
                    collector.take(ParseDict(body, ExportTraceServiceRequest()))
                except Exception as error:
                    collector.errors.append(error)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            self.services |= {one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def span(self, name: str, near: ReadableSpan) -> Any:
        """The span with this name in the trace of `near`, once it is there."""
        trace_id = format(near.context.trace_id, "032x")

        def find() -> list[Any]:
            assert not self.errors
            return [span for span in self.spans if span.name == name and hexadecimal(span.trace_id) == trace_id]

        return until(find)[0]


def hexadecimal(id: bytes) -> str:
    """OTLP's JSON has ids in hexadecimal, which protobuf's classes read as base64."""
    import base64

    return base64.b64encode(id).decode()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.server.shutdown()
    assert not collector.errors


@pytest.fixture(scope="module", params=["threads", "processes"])
def traced(start_provider: Callable[..., Process], collector: Collector, request: pytest.FixtureRequest) -> Process:
    processes = ["--processes", "1"] if request.param == "processes" else []
    return start_provider(
        "traced_functions:provider", "--trace-endpoint", collector.url, "--service-name", "traced", *processes
    )


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    """The spans that this process makes. OpenTelemetry takes one provider in a process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def own(exporter: InMemorySpanExporter) -> Callable[[str], ReadableSpan]:
    exporter.clear()

    def find(name: str) -> ReadableSpan:
        return next(span for span in exporter.get_finished_spans() if span.name == name)

    return find


def span_id(span: ReadableSpan) -> str:
    return format(span.context.span_id, "016x")


def test_the_span_of_a_client_is_below_the_current_one_and_above_the_servers(
    traced: Process, collector: Collector, own: Callable[[str], ReadableSpan]
) -> None:
    with trace.get_tracer("test").start_as_current_span("outer"), Client(traced.url) as client:
        client.call("add", 1, 2)
    sent, outer = own("add"), own("outer")
    server = collector.span("add", outer)
    assert sent.parent is not None and sent.parent.span_id == outer.context.span_id
    assert sent.kind is trace.SpanKind.CLIENT
    assert sent.attributes is not None and sent.attributes["rpc.method"] == "add"
    assert hexadecimal(server.parent_span_id) == span_id(sent)
    assert server.kind == server.SPAN_KIND_SERVER
    attributes = {one.key: one.value for one in server.attributes}
    assert attributes["rpc.system"].string_value == "jsonrpc"
    assert attributes["shared_tensor.run_ms"].HasField("double_value")
    assert 0 < server.end_time_unix_nano - server.start_time_unix_nano < 30e9
    assert abs(time.time() - server.end_time_unix_nano / 1e9) < 60
    assert "traced" in collector.services


@pytest.mark.parametrize("name", ["traced", "traced_async"])
def test_spans_that_a_function_makes_are_below_the_servers(
    traced: Process, collector: Collector, own: Callable[[str], ReadableSpan], name: str
) -> None:
    with Client(traced.url) as client:
        inner = client.call(name)
    server = collector.span(name, own(name))
    assert inner["parent"] == hexadecimal(server.span_id)
    assert inner["trace"] == format(own(name).context.trace_id, "032x")


def test_an_error_is_the_error_of_both_spans(
    traced: Process, collector: Collector, own: Callable[[str], ReadableSpan]
) -> None:
    with Client(traced.url) as client, pytest.raises(FunctionFailed):
        client.call("fail")
    assert own("fail").status.status_code is trace.StatusCode.ERROR
    server = collector.span("fail", own("fail"))
    assert server.status.code == server.status.STATUS_CODE_ERROR
    assert {one.key: one.value.string_value for one in server.attributes}["error.type"] == "function_failed"


def test_tasks_streams_batches_and_notifications_are_in_the_trace(
    traced: Process, collector: Collector, own: Callable[[str], ReadableSpan]
) -> None:
    with trace.get_tracer("test").start_as_current_span("outer"), Client(traced.url) as client:
        assert client.submit("add", 1, 2).result() == 3
        assert list(client.stream("count", 3)) == [0, 1, 2]
        with client.batch() as batch:
            batch.call("multiply", 2, 3)
        client.notify("subtract", 3, 2)
    for name in "task.submit", "count", "multiply", "subtract":
        assert collector.span(name, own("outer"))


def test_asyncio_has_a_span_for_each_call(
    traced: Process, collector: Collector, own: Callable[[str], ReadableSpan]
) -> None:
    async def calls() -> None:
        async with AsyncClient(traced.url) as client:
            with trace.get_tracer("test").start_as_current_span("outer"):
                await asyncio.gather(client.call("add", 1, 2), client.call("multiply", 2, 3))
                assert [item async for item in client.stream("count", 2)] == [0, 1]

    asyncio.run(calls())
    for name in "add", "multiply", "count":
        parent = own(name).parent
        assert parent is not None and parent.span_id == own("outer").context.span_id, name
        assert collector.span(name, own("outer"))


def test_a_function_that_calls_another_server_passes_the_trace_on(
    traced: Process, collector: Collector, own: Callable[[str], ReadableSpan]
) -> None:
    with Client(traced.url) as client:
        assert client.call("pass_on", traced.url) == 7
    assert collector.span("pass_on", own("pass_on"))
    assert collector.span("next", own("pass_on"))
