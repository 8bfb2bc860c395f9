"""SharedTensorClient and AsyncSharedTensorClient, as users of shared-tensor 0.1 know them."""

from __future__ import annotations

import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from conftest import until

from shared_tensor import errors, jsonrpc
from shared_tensor.async_client import AsyncSharedTensorClient, execute_remote_function_async
from shared_tensor.async_task import TaskInfo, TaskStatus
from shared_tensor.client import SharedTensorClient, execute_remote_function

# ---- SharedTensorClient


def test_functions_are_called_with_a_list_and_a_dict(first: SharedTensorClient) -> None:
    assert first.call_function("add_numbers", [10, 20]) == 30
    assert first.call_function("add_numbers", (10,)) == 11
    assert first.call_function("add_numbers", [10], {"b": 5}) == 15
    assert first.call_function("add_numbers", kwargs={"a": 1, "b": 2}) == 3


def test_of_a_path_the_name_counts(first: SharedTensorClient, port: int) -> None:
    assert first.execute_function("no.such.module:add_numbers", (1,), {"b": 2}, {"singleton": False}) == 3
    assert execute_remote_function("first_functions:add_numbers", (1, 2), server_port=port) == 3


def test_a_client_tells_about_its_server(first: SharedTensorClient) -> None:
    assert first.ping()
    assert first.get_server_info()["protocol"]
    functions = first.list_functions()
    assert functions["add_numbers"] == "The sum." and "task.submit" not in functions


def test_the_old_exceptions_catch_what_they_caught(first: SharedTensorClient) -> None:
    for name, arguments in [("no_such_function", []), ("fail", ["x"]), ("add_numbers", [])]:
        with pytest.raises(errors.SharedTensorServerError):
            first.call_function(name, arguments)
    with pytest.raises(errors.SharedTensorProviderError, match="x"):
        first.call_function("fail", ["x"])


def test_without_a_server_there_is_a_client_error() -> None:
    nobody = SharedTensorClient(server_port=1, timeout=5, retry_count=0)
    with pytest.raises(errors.SharedTensorClientError) as raised:
        nobody.call_function("add_numbers", [1, 2])
    assert not isinstance(raised.value, errors.SharedTensorServerError)
    assert not nobody.ping()


def test_a_deadline_is_an_error_of_both_sides(port: int) -> None:
    client = SharedTensorClient(port, 0.2)
    with pytest.raises(TimeoutError) as raised:
        client.call_function("pass_gate", ["never"])
    assert isinstance(raised.value, errors.SharedTensorServerError)
    assert isinstance(raised.value, errors.SharedTensorClientError)


class Busy(BaseHTTPRequestHandler):
    """Rejects each request as a server does that has too much work."""

    protocol_version = "HTTP/1.1"
    requests: list[str]

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        request = jsonrpc.parse_request(text)
        self.requests.append(request.method)
        rejection = jsonrpc.create_error_response(request.id, -32001, "Server busy", {"retry_after_ms": 1})
        body = rejection.to_json().encode()
        self.send_response(503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.parametrize("retry_count", [0, 2])
def test_a_rejected_call_is_repeated_as_often_as_retry_count_says(retry_count: int) -> None:
    handler = type("Handler", (Busy,), {"requests": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with (
            SharedTensorClient(server.server_port, retry_count=retry_count) as client,
            pytest.raises(errors.ServerBusy),
        ):
            client.call_function("work")
        server.shutdown()
    assert handler.requests.count("work") == 1 + retry_count  # type: ignore[attr-defined]


def test_verbose_debug_logs_each_call(port: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "shared_tensor"):
        SharedTensorClient(port).call_function("add_numbers", [1, 2])
        assert caplog.messages == []
        SharedTensorClient(port, verbose_debug=True).call_function("add_numbers", [1, 2])
        (line,) = caplog.messages
    assert "add_numbers" in line and "(1, 2)" in line


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "NoneType"),
        (True, "bool"),
        (1, "int"),
        (1.0, "float"),
        ("a", "str"),
        (b"ab", "str"),
        ((1, 2), "list"),
        ({1}, "list"),
        ({"a": 1}, "dict"),
    ],
    ids=repr,
)
def test_what_a_function_without_type_hints_gets(first: SharedTensorClient, value: Any, kind: str) -> None:
    assert first.call_function("kind", [value]) == kind


def test_with_type_hints_bytes_tuples_and_sets_are_what_they_were(first: SharedTensorClient) -> None:
    assert first.call_function("kinds_with_hints", [b"ab", (1, 2), {1}]) == ["bytes", "tuple", "set"]
    assert first.call_function("results") == ["YWI=", [1, 2]]


@pytest.mark.parametrize("value", [len, int, object(), threading.Lock(), {1: 2}], ids=lambda v: type(v).__name__)
def test_what_only_pickle_could_send_is_a_type_error(first: SharedTensorClient, value: Any) -> None:
    with pytest.raises(TypeError):
        first.call_function("kind", [value])


# ---- AsyncSharedTensorClient


def test_a_task_is_submitted_watched_and_its_result_fetched(tasks: AsyncSharedTensorClient) -> None:
    task = tasks.submit_task("pass_gate", ["watched"])
    assert tasks.get_task_status(task).status in (TaskStatus.PENDING, TaskStatus.RUNNING), "submit does not wait"
    with pytest.raises(errors.SharedTensorServerError, match=r"has not ended within 0\.1 s"):
        tasks.wait_for_task(task, timeout=0.1)
    running = until(lambda: tasks.list_tasks("running").get(task))
    assert (running.function_path, running.completed_at) == ("pass_gate", None)
    assert until(lambda: tasks.get_task_status(task).progress) == {"fraction": 0.5, "message": "waits"}

    tasks.client.open_gate("watched")
    assert tasks.get_task_result(task) == "passed watched"
    ended = tasks.get_task_status(task)
    assert ended.status.value == "completed"
    assert ended.completed_at is not None and ended.completed_at >= ended.created_at
    assert task in tasks.list_tasks(TaskStatus.COMPLETED) and task not in tasks.list_tasks("running")
    assert task in tasks.list_tasks()
    with pytest.raises(ValueError):
        tasks.list_tasks("asleep")


def test_a_list_of_tasks_that_needs_several_requests_is_complete(
    tasks: AsyncSharedTensorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = [tasks.submit_task("add_numbers", [n]) for n in range(5)]
    assert [tasks.get_task_result(task) for task in submitted] == [1, 2, 3, 4, 5]
    monkeypatch.setattr("shared_tensor._first.tasks.PAGE", 2)
    assert list(tasks.list_tasks("completed"))[:5] == submitted[::-1], "the newest first"


def test_a_callback_gets_each_report_until_the_end(tasks: AsyncSharedTensorClient) -> None:
    seen: list[TaskInfo] = []

    def report(info: TaskInfo) -> None:
        seen.append(info)
        if len(seen) == 2:
            tasks.client.open_gate("reported")
        raise RuntimeError("the wait goes on all the same")

    task = tasks.submit_task("pass_gate", kwargs={"name": "reported"})
    assert tasks.wait_for_task(task, 30, report) == "passed reported"
    assert len(seen) >= 3 and seen[-1].status is TaskStatus.COMPLETED
    assert all(info.task_id == task and not info.status.ended for info in seen[:2])


def test_a_task_is_cancelled_once(tasks: AsyncSharedTensorClient) -> None:
    task = tasks.submit_task("pass_gate", ["cancelled"])
    assert tasks.cancel_task(task)
    assert tasks.get_task_status(task).status is TaskStatus.CANCELLED
    assert not tasks.cancel_task(task), "it has ended"
    assert not tasks.cancel_task("t-00000000000000000000000000000000"), "there is none"
    with pytest.raises(errors.SharedTensorServerError):
        tasks.wait_for_task(task)


def test_the_error_of_a_failed_task_is_raised_and_told(tasks: AsyncSharedTensorClient) -> None:
    task = tasks.submit_task("first_functions:fail", ["no luck"])
    with pytest.raises(errors.SharedTensorServerError, match="no luck"):
        tasks.wait_for_task(task)
    info = tasks.get_task_status(task)
    assert (info.status, info.error_message) == (TaskStatus.FAILED, "ValueError: no luck")
    assert TaskInfo.from_dict(json.loads(json.dumps(info.to_dict()))) == info


def test_a_function_is_executed_as_a_task_with_or_without_waiting(tasks: AsyncSharedTensorClient, port: int) -> None:
    assert tasks.execute_function_async("add_numbers", (1,), {"b": 2}) == 3
    task = tasks.execute_function_async("add_numbers", (1, 2), wait=False)
    assert tasks.get_task_result(task) == 3
    assert execute_remote_function_async("first_functions:add_numbers", (1, 2), server_port=port) == 3
