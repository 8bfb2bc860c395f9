"""The names that users of shared-tensor 0.1 know, their import paths, parameters and defaults; jsonrpc and utils."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import urllib.error
import urllib.request
from typing import Any

import pytest

import shared_tensor
from shared_tensor import jsonrpc, utils
from shared_tensor.async_client import AsyncSharedTensorClient
from shared_tensor.async_provider import AsyncSharedTensorProvider
from shared_tensor.async_task import TaskInfo
from shared_tensor.client import SharedTensorClient
from shared_tensor.provider import SharedTensorProvider
from shared_tensor.server import SharedTensorServer

# ---- names


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("client", "SharedTensorClient execute_remote_function"),
        ("async_client", "AsyncSharedTensorClient execute_remote_function_async"),
        ("provider", "SharedTensorProvider"),
        ("async_provider", "AsyncSharedTensorProvider"),
        ("server", "SharedTensorServer main"),
        ("errors", "SharedTensorError SharedTensorServerError SharedTensorClientError SharedTensorProviderError"),
        ("async_task", "TaskInfo TaskStatus"),
        ("jsonrpc", "JsonRpcRequest JsonRpcResponse JsonRpcError JsonRpcErrorCodes"),
        ("jsonrpc", "create_success_response create_error_response parse_request parse_response"),
        ("utils", "import_function_from_path format_cache_key serialize_result deserialize_args"),
        ("", "SharedTensorClient SharedTensorProvider SharedTensorServer AsyncSharedTensorClient"),
        ("", "AsyncSharedTensorProvider TaskInfo"),
    ],
)
def test_each_name_is_imported_from_the_path_that_it_had(module: str, names: str) -> None:
    found = importlib.import_module(f"shared_tensor.{module}".rstrip("."))
    assert [name for name in names.split() if not hasattr(found, name)] == []


def test_a_name_that_the_package_never_had_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'SharedTensorServers'"):
        shared_tensor.SharedTensorServers


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (SharedTensorClient, {"server_port": 2537, "timeout": 30, "retry_count": 3, "verbose_debug": False}),
        (AsyncSharedTensorClient, {"server_port": 2537, "verbose_debug": False, "poll_interval": 1.0}),
        (
            SharedTensorServer,
            {
                "host": "127.0.0.1",
                "port": 2537,
                "timeout": 30,
                "max_workers": 4,
                "enable_cache": True,
                "debug": False,
            },
        ),
        (AsyncSharedTensorClient.wait_for_task, {"timeout": None, "callback": None}),
        (AsyncSharedTensorClient.submit_task, {"args": (), "kwargs": None}),
        (AsyncSharedTensorClient.list_tasks, {"status": None}),
        (SharedTensorClient.call_function, {"args": (), "kwargs": None}),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_parameters_and_defaults_are_those_of_the_first(function: Any, parameters: dict[str, Any]) -> None:
    of_function = inspect.signature(function).parameters
    assert {name: of_function[name].default for name in parameters} == parameters
    order = [name for name in of_function if name in parameters]
    assert order == list(parameters), "they can be given by position"


def test_a_provider_takes_the_port_of_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    assert SharedTensorProvider().server_port == AsyncSharedTensorProvider().server_port == 2540
    assert SharedTensorProvider(server_port=9000).server_port == 9000


def test_registered_functions_can_be_looked_at() -> None:
    provider = SharedTensorProvider()

    @provider.share(name="twice")
    def double(x: int, factor: int = 2) -> int:
        return x * factor

    assert list(provider._registered_functions) == ["twice"]
    registered = provider._registered_functions["twice"]
    assert repr(registered).startswith(f"<twice(x: 'int', factor: 'int' = 2) -> 'int' at {__file__}:")
    assert registered["name"] == "twice" and registered["function_path"].startswith(f"{__name__}:")


# ---- jsonrpc, utils


def test_a_request_made_by_hand_is_answered(port: int) -> None:
    request = jsonrpc.JsonRpcRequest("add_numbers", {"a": 1, "b": 2})
    assert jsonrpc.parse_request(request.to_json()) == request
    assert jsonrpc.parse_response(post(port, request)).result == 3
    unknown = jsonrpc.parse_response(post(port, jsonrpc.JsonRpcRequest("no_such_function", id=7)))
    assert unknown.id == 7 and unknown.error is not None
    assert unknown.error["code"] == jsonrpc.JsonRpcErrorCodes.METHOD_NOT_FOUND
    failed = jsonrpc.parse_response(post(port, jsonrpc.JsonRpcRequest("fail", ["x"])))
    assert failed.error is not None and failed.error["code"] == jsonrpc.JsonRpcErrorCodes.FUNCTION_EXECUTION_ERROR


def post(port: int, request: jsonrpc.JsonRpcRequest) -> str:
    http = urllib.request.Request(
        f"http://127.0.0.1:{port}/jsonrpc",
        data=request.to_json().encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(http, timeout=20) as response:
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


def test_responses_are_written_and_read() -> None:
    good = jsonrpc.create_success_response(1, None)
    assert json.loads(good.to_json()) == {"jsonrpc": "2.0", "id": 1, "result": None}
    assert jsonrpc.parse_response(good.to_json()) == good
    bad = jsonrpc.create_error_response("a", -32000, "Function failed", {"type": "KeyError"})
    assert jsonrpc.parse_response(bad.to_json()) == bad and "result" not in bad.to_dict()


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (jsonrpc.parse_request, "{"),
        (jsonrpc.parse_request, "[]"),
        (jsonrpc.parse_request, '{"method": "f"}'),
        (jsonrpc.parse_request, '{"jsonrpc": "2.0"}'),
        (jsonrpc.parse_request, '{"jsonrpc": "2.0", "method": 3}'),
        (jsonrpc.parse_response, '{"jsonrpc": "2.0", "result": 1}'),
        (jsonrpc.parse_response, '{"jsonrpc": "2.0", "id": 1}'),
        (jsonrpc.parse_response, '{"jsonrpc": "2.0", "id": 1, "result": 1, "error": {}}'),
    ],
)
def test_text_that_is_no_message_is_a_value_error(parse: Any, text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


def test_a_function_is_imported_by_its_path() -> None:
    assert utils.import_function_from_path("os.path:join") is os.path.join
    assert utils.import_function_from_path("shared_tensor.async_task:TaskInfo.to_dict") is TaskInfo.to_dict
    for path, error in [("os.path", ValueError), ("os:sep", ValueError), ("os:nothing", ImportError)]:
        with pytest.raises(error):
            utils.import_function_from_path(path)


def test_a_cache_key_has_the_arguments_that_its_format_names() -> None:
    def load(size: int, kind: str = "small") -> None: ...

    assert utils.format_cache_key("load", load, (3,), {}, "{_name_}-{size}-{kind}") == "load-3-small"


def test_nothing_is_pickled() -> None:
    for function in (utils.serialize_result, utils.deserialize_args):
        with pytest.raises(TypeError, match="pickles nothing"):
            function(b"")
