"""Streams of tensors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy
import pytest

from shared_tensor import errors
from shared_tensor.streams import TensorClient, TensorServicer, serve


@pytest.fixture(scope="module")
def port(start_service: Callable[..., Any]) -> int:
    return int(start_service("streams").url.rpartition(":")[2])


def run(port: int, work: Callable[[TensorClient], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with TensorClient(port=port) as client:
            return await work(client)

    return asyncio.run(main())


def test_tensors_are_sent(port: int) -> None:
    response = run(port, lambda client: client.send_tensors(numpy.ones(3), numpy.zeros((2, 2)), numpy.float32(1)))
    assert response.success and response.message == "Received 3 tensor(s)"
    assert len(set(response.received_tensor_ids)) == 3


def test_tensors_are_received(port: int) -> None:
    async def work(client: TensorClient) -> None:
        tensors = await client.receive_tensors(count=2)
        assert [tensor.tolist() for tensor in tensors] == [[0, 0], [1, 1]]
        tensors = await client.receive_tensors(count=3, parameters={"shape": [2, 2]})
        assert [tensor.shape for tensor in tensors] == [(2, 2)] * 3
        assert len(await client.receive_tensors(count=0)) == 1

    run(port, work)


def test_tensors_of_torch_come_back_as_tensors_of_torch(port: int) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed in this environment")
    tensor = torch.randn(100, 100)
    processed = run(port, lambda client: client.stream_tensors(tensor, tensor + 1))
    assert torch.equal(processed[0], tensor / 2) and torch.equal(processed[1], (tensor + 1) / 2)


def test_more_tensors_than_a_window_holds_cross_in_both_directions(port: int) -> None:
    """The window of a stream is 4 MiB: a client that wrote all tensors before it read one would wait for ever."""
    tensors = [numpy.full(1 << 16, n, numpy.float32) for n in range(400)]
    processed = run(port, lambda client: client.stream_tensors(*tensors))
    assert all(numpy.array_equal(p, t / 2) for p, t in zip(processed, tensors, strict=True))


def test_one_tensor_larger_than_a_window(port: int) -> None:
    tensor = numpy.arange(4 << 20, dtype=numpy.float32)
    assert numpy.array_equal(run(port, lambda client: client.stream_tensors(tensor))[0], tensor / 2)


def test_streams_at_once(port: int) -> None:
    async def work(client: TensorClient) -> list[list[Any]]:
        return await asyncio.gather(*(client.stream_tensors(*[numpy.full(100, n)] * 20) for n in range(12)))

    for n, processed in enumerate(run(port, work)):
        assert len(processed) == 20 and all((tensor == n / 2).all() for tensor in processed)


def test_an_error_of_the_server_ends_the_stream(port: int) -> None:
    async def work(client: TensorClient) -> None:
        many = [numpy.full(1 << 16, 1.0)] * 100
        with pytest.raises(errors.FunctionFailed, match="a tensor without dimensions"):
            await client.stream_tensors(numpy.array(1.0), *many)
        assert len(await client.stream_tensors(numpy.ones(1))) == 1

    run(port, work)


def test_a_tensor_that_cannot_be_read_here_ends_the_stream(port: int) -> None:
    async def main() -> None:
        def reject(_: Any) -> Any:
            raise RuntimeError("not this one")

        async with TensorClient(port=port, framework=reject) as client:
            with pytest.raises(RuntimeError, match="not this one"):
                await client.stream_tensors(*[numpy.full(1 << 16, 1.0)] * 100)

    asyncio.run(main())


def test_a_server_that_dies_ends_the_stream(start_service: Callable[..., Any]) -> None:
    service = start_service("streams")

    async def work(client: TensorClient) -> None:
        await client.send_tensors(numpy.ones(3))
        service.kill()
        with pytest.raises(errors.TransportFailure):
            await client.stream_tensors(numpy.ones(3))

    run(int(service.url.rpartition(":")[2]), work)


def test_a_servicer_without_tensors_says_so_and_keeps_the_newest() -> None:
    servicer = TensorServicer(keep_received=2, framework="numpy")
    port = int(servicer.start(port=0).rpartition(":")[2])

    async def work(client: TensorClient) -> None:
        with pytest.raises(errors.FunctionFailed, match=r"override _get_tensor_to_send\(\)"):
            await client.receive_tensors()
        response = await client.send_tensors(numpy.ones(1), numpy.ones(2), numpy.ones(3))
        assert list(servicer.received_tensors) == response.received_tensor_ids[1:]
        assert servicer.received_tensors[response.received_tensor_ids[2]].shape == (3,)
        assert numpy.array_equal((await client.stream_tensors(numpy.ones(3)))[0], numpy.ones(3))

    try:
        run(port, work)
    finally:
        servicer.stop()


def test_another_host_than_loopback_needs_a_token() -> None:
    with pytest.raises(ValueError, match=r"without a token.*token_file="):
        TensorServicer().start(host="0.0.0.0", port=0)
    with pytest.raises(ValueError, match="without a token"):
        asyncio.run(serve(host="0.0.0.0"))
