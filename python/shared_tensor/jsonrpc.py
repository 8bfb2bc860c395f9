"""Records of JSON-RPC 2.0, for programs that send requests themselves (POST /jsonrpc; docs/protocol.md). The clients of
this package do not use them."""

from __future__ import annotations

import dataclasses
import json
import uuid
from typing import Any

Id = str | int | None
Params = dict[str, Any] | list[Any] | None


class JsonRpcErrorCodes:
    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    # The codes that this server sends for what had a code of its own in shared-tensor 0.1:
    FUNCTION_IMPORT_ERROR = METHOD_NOT_FOUND
    FUNCTION_EXECUTION_ERROR = -32000
    SERIALIZATION_ERROR = INVALID_PARAMS


@dataclasses.dataclass
class JsonRpcRequest:
    """`id`: a random one, if it is not given."""

    method: str
    params: Params = None
    id: Id = dataclasses.field(default=None)
    jsonrpc: str = "2.0"

    def __post_init__(self) -> None:
        if self.id is None:
            self.id = str(uuid.uuid4())

    def to_dict(self) -> dict[str, Any]:
        request = {"jsonrpc": self.jsonrpc, "id": self.id, "method": self.method}
        return request if self.params is None else {**request, "params": self.params}

    def to_json(self) -> str:
        return json.dumps(self.to_dict())


@dataclasses.dataclass
class JsonRpcError:
    code: int
    message: str
    data: Any = None

    def to_dict(self) -> dict[str, Any]:
        error = {"code": self.code, "message": self.message}
        return error if self.data is None else {**error, "data": self.data}


@dataclasses.dataclass
class JsonRpcResponse:
    """A response has a result, unless `error` is set."""

    id: Id
    result: Any = None
    error: dict[str, Any] | None = None
    jsonrpc: str = "2.0"

    def to_dict(self) -> dict[str, Any]:
        outcome = {"result": self.result} if self.error is None else {"error": self.error}
        return {"jsonrpc": self.jsonrpc, "id": self.id, **outcome}

    def to_json(self) -> str:
        return json.dumps(self.to_dict())


def create_success_response(request_id: Id, result: Any) -> JsonRpcResponse:
    return JsonRpcResponse(request_id, result)


def create_error_response(request_id: Id, code: int, message: str, data: Any = None) -> JsonRpcResponse:
    return JsonRpcResponse(request_id, error=JsonRpcError(code, message, data).to_dict())


def parse_request(json_str: str) -> JsonRpcRequest:
    """Raises ValueError if the text is no request."""
    request = _message(json_str, "request")
    if not isinstance(request.get("method"), str):
        raise ValueError("the request has no method: expected a member 'method' with a text")
    return JsonRpcRequest(request["method"], request.get("params"), request.get("id"))


def parse_response(json_str: str) -> JsonRpcResponse:
    """Raises ValueError if the text is no response."""
    response = _message(json_str, "response")
    if "id" not in response:
        raise ValueError("the response has no id")
    if ("result" in response) == ("error" in response):
        raise ValueError("a response has either a member 'result' or a member 'error'")
    return JsonRpcResponse(response["id"], response.get("result"), response.get("error"))


def _message(text: str, kind: str) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the {kind} is not JSON: {error}") from error
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ValueError(f'the {kind} is not JSON-RPC 2.0: expected an object with "jsonrpc": "2.0"')
    return message
