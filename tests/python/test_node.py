"""Nodes: the scenarios of tensor_iroh by its names, and Node itself."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import numpy
import pytest

from shared_tensor import errors
from shared_tensor.node import Node, PyTensorData, PyTensorNode
from shared_tensor.node.receiver import Receiver


def data(shape: tuple[int, ...], first: float = 0) -> PyTensorData:
    array = numpy.arange(numpy.prod(shape, dtype=int), dtype=numpy.float32) + numpy.float32(first)
    return PyTensorData(array.tobytes(), list(shape), "float32", False)


def equal(a: PyTensorData, b: PyTensorData) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.as_bytes() == b.as_bytes()


@contextlib.asynccontextmanager
async def started(count: int, **options: Any) -> AsyncIterator[list[PyTensorNode]]:
    nodes = [PyTensorNode(**options) for _ in range(count)]
    await asyncio.gather(*(node.start() for node in nodes))
    try:
        yield nodes
    finally:
        for node in nodes:
            node.shutdown()


def scenario(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a coroutine function as a test. No scenario may take longer than a minute."""

    def test(peer: Any) -> None:
        asyncio.run(asyncio.wait_for(work(peer.url), 60))

    test.__doc__ = work.__doc__
    return test


@pytest.fixture(scope="module")
def peer(start_service: Callable[..., Any]) -> Any:
    """A node in a process of its own, which sends each tensor back."""
    return start_service("node")


# ---- the 13 scenarios


@scenario
async def test_basic(peer: str) -> None:
    async with started(1) as [node]:
        sent = data((3, 4))
        await node.send_tensor(peer, f"{await node.get_node_addr()}|basic", sent)
        received = await node.receive_tensor(timeout=30)
        assert received is not None and received.name == "basic" and equal(received, sent)
        name, tensor = received
        assert name == "basic" and tensor is received and not tensor.requires_grad


@scenario
async def test_pull(peer: str) -> None:
    async with started(2) as [one, other]:
        one.register_tensor("x", data((2, 3)))
        assert equal(await other.pull_tensor(await one.get_node_addr(), "x"), data((2, 3)))
        assert equal(await other.pull_tensor(peer, "weights/w"), data((2, 3)))


@scenario
async def test_concurrent_sends(peer: str) -> None:
    async with started(6) as [receiver, *senders]:
        address = await receiver.get_node_addr()
        await asyncio.gather(
            *(
                sender.send_tensor(address, f"{i} {n}", data((n + 1,)))
                for i, sender in enumerate(senders)
                for n in range(20)
            )
        )
        received = {(await receiver.receive_tensor(timeout=30)).name for _ in range(100)}  # type: ignore[union-attr]
        assert received == {f"{i} {n}" for i in range(5) for n in range(20)}
        assert await receiver.receive_tensor() is None


@scenario
async def test_rapid_fire_stays_in_order(peer: str) -> None:
    async with started(1) as [node]:
        own = await node.get_node_addr()
        for n in range(200):
            await node.send_tensor(peer, f"{own}|{n}", data((10,), n))
        for n in range(200):
            received = await node.receive_tensor(timeout=30)
            assert received is not None and received.name == str(n) and equal(received, data((10,), n))


@pytest.mark.parametrize("shape", [(0,), (), (1,), (64, 64), (256, 1024), (16, 1024, 1024)], ids=str)
@pytest.mark.parametrize("local_socket", ["auto", "none"])
def test_sizes(peer: Any, shape: tuple[int, ...], local_socket: str) -> None:
    async def work() -> None:
        async with started(1, local_socket=local_socket) as [node]:
            sent = data(shape)
            await node.send_tensor(peer.url, f"{await node.get_node_addr()}|sized", sent)
            received = await node.receive_tensor(timeout=60)
            assert received is not None and equal(received, sent)

    asyncio.run(work())


@scenario
async def test_many_receivers(peer: str) -> None:
    async with started(8) as [sender, *receivers]:
        addresses = [await receiver.get_node_addr() for receiver in receivers]
        await asyncio.gather(*(sender.send_tensor(address, "all", data((100, 100))) for address in addresses))
        for receiver in receivers:
            received = await receiver.receive_tensor(timeout=30)
            assert received is not None and equal(received, data((100, 100)))


@scenario
async def test_a_tensor_waits_for_its_receiver_and_a_node_that_was_not_started_says_so(peer: str) -> None:
    idle = PyTensorNode()
    for call in (idle.get_node_addr(), idle.send_tensor(peer, "x", data((1,))), idle.receive_tensor()):
        with pytest.raises(RuntimeError, match="was not started"):
            await call
    idle.shutdown()
    async with started(2) as [sender, receiver]:
        assert await receiver.receive_tensor() is None
        await sender.send_tensor(await receiver.get_node_addr(), "early", data((5,)))
        received = await receiver.receive_tensor()
        assert received is not None and equal(received, data((5,)))


@scenario
async def test_a_shutdown_at_once_and_one_that_ends_a_waiting_receive(peer: str) -> None:
    async with started(2) as [one, other]:
        one.shutdown()
        waiting = asyncio.create_task(other.receive_tensor(timeout=1000))
        await asyncio.sleep(0)
        other.shutdown()
        assert await waiting is None


@scenario
async def test_timeouts(peer: str) -> None:
    async with started(1, push_timeout=3) as [sender], started(1, inbox_messages=1) as [receiver]:
        assert await sender.receive_tensor(timeout=0.01) is None
        address = await receiver.get_node_addr()
        await sender.send_tensor(address, "first", data((1,)))
        with pytest.raises(errors.ServerBusy, match="stays full"):
            await sender.send_tensor(address, "second", data((1,)))


@scenario
async def test_a_name_that_is_not_there(peer: str) -> None:
    async with started(1) as [node]:
        with pytest.raises(errors.UnknownOrExpired):
            await node.pull_tensor(peer, "nothing")


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("", ValueError),
        ("not an address", ValueError),
        ("http://", ValueError),
        ("ftp://127.0.0.1:1", ValueError),
        ("http://127.0.0.1:1", errors.TransportFailure),
        ("http://name.invalid:2537", errors.TransportFailure),
    ],
)
def test_a_bad_address(address: str, error: type[Exception]) -> None:
    async def work() -> None:
        async with started(1) as [node]:
            with pytest.raises(error):
                await node.send_tensor(address, "x", data((1,)))
            assert await node.pool_size() == 0

    asyncio.run(work())


@scenario
async def test_after_shutdown(peer: str) -> None:
    async with started(2) as [one, other]:
        address = await other.get_node_addr()
        other.shutdown()
        other.shutdown()
        with pytest.raises(errors.ShuttingDown):
            await other.send_tensor(peer, "x", data((1,)))
        assert await other.receive_tensor(timeout=1000) is None
        with pytest.raises(errors.TransportFailure):
            await one.send_tensor(address, "x", data((1,)))


@scenario
async def test_a_second_send_to_a_node_opens_no_connection(peer: str) -> None:
    async with started(2) as [sender, receiver]:
        address = await receiver.get_node_addr()
        sender.register_tensor("own", data((1,)))
        assert await sender.pool_size() == 0
        await sender.send_tensor(address, "first", data((1,)))
        opened = sender._node.peers()[address]["connections_opened"]
        for n in range(10):
            await sender.send_tensor(address, str(n), data((1,)))
        assert await sender.pool_size() == 1
        assert sender._node.peers()[address]["connections_opened"] == opened


# ---- PyTensorData


def test_data_has_the_bytes_shape_and_dtype_that_were_given() -> None:
    array = numpy.arange(6, dtype=numpy.int16)
    for given in (array, array.tobytes(), bytearray(array.tobytes()), memoryview(array)):
        made = PyTensorData(given, [2, 3], "int16", False)
        assert (made.shape, made.dtype, made.requires_grad) == ([2, 3], "int16", False)
        assert made.as_bytes() == array.tobytes()
        assert made.as_numpy().tobytes() == array.tobytes() and made.as_numpy().dtype == numpy.uint8
        assert numpy.array_equal(numpy.from_dlpack(made), array.reshape(2, 3))


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ((b"123", [1], "float32"), ValueError, "has 4 bytes, but the data has 3"),
        ((b"1234", [1], "float33"), ValueError, "no dtype has this name"),
        ((b"1234", [-1], "float32"), ValueError, "cannot be negative"),
        ((numpy.ones(8, numpy.float32)[::2], [4], "float32"), (ValueError, BufferError), "contiguous"),
        (("text", [1], "float32"), TypeError, "bytes-like"),
    ],
)
def test_data_that_does_not_fit_is_rejected(given: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        PyTensorData(*given)


def test_data_becomes_a_tensor_of_torch_without_a_copy() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed in this environment")
    made = PyTensorData(numpy.ones(4, numpy.float32), [4], "float32", True)
    tensor = made.to_torch()
    assert tensor.requires_grad and torch.equal(tensor.detach(), torch.ones(4))
    tensor.detach()[0] = 5
    assert numpy.frombuffer(made.as_bytes(), numpy.float32)[0] == 5


# ---- Node


def test_an_option_of_a_wrong_type_is_named() -> None:
    node = Node(inbox_messages="many")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="inbox_messages has a wrong type"):
        asyncio.run(node.start())


def test_a_node_publishes_sets_versions_and_rows() -> None:
    async def work() -> None:
        async with Node(framework="numpy") as one, Node(framework="numpy") as other:
            x = numpy.arange(20, dtype=numpy.float32).reshape(10, 2)
            published = await one.publish("x", x, metadata={"step": "7"})
            assert (published.name, published.version) == ("x", 1) and published.bytes >= x.nbytes
            pulled = await other.pull(one.url, "x")
            assert pulled.version == 1 and pulled.metadata == {"step": "7"} and numpy.array_equal(pulled.tensor, x)
            rows = await other.pull(one.url, "x", first_row=2, last_row=5)
            assert numpy.array_equal(rows.tensor, x[2:5])
            await one.publish("set", {"a": x, "b": x + 1}, if_version=0)
            pulled = await other.pull(one.url, "set")
            assert len(pulled) == 2 and numpy.array_equal(pulled["b"], x + 1)
            await one.publish("set", {"b": x + 2}, base=1)
            pulled = await other.pull(one.url, "set")
            assert len(pulled) == 2 and numpy.array_equal(pulled["a"], x) and numpy.array_equal(pulled["b"], x + 2)
            with pytest.raises(errors.InvalidParams):
                await one.publish("set", {"a": x}, if_version=0)
            with pytest.raises(KeyError, match="is a single tensor"):
                rows["a"]
            assert other.statistics().pulled == 4 and one.statistics().published == 3 and one.statistics().failed == 1

    asyncio.run(work())


def test_tensors_of_one_host_cross_through_shared_memory(peer: Any) -> None:
    async def work() -> None:
        x = numpy.zeros(1 << 20, numpy.float32)
        async with Node() as near, Node(local_socket="none") as far, Node() as receiver:
            for node in (near, far):
                await node.push(receiver.url, "x", x)
            sent = [node.peers()[receiver.url]["bytes_out"] for node in (near, far)]
            assert sent[0] < 100_000 and sent[1] > x.nbytes

    asyncio.run(work())


def test_other_tasks_run_while_a_push_waits() -> None:
    """The push waits for room, which the same event loop makes. It would fail if it held the GIL."""

    async def work() -> None:
        async with Node(push_timeout=30) as sender, Node(inbox_messages=1, framework="numpy") as receiver:
            await sender.push(receiver.url, "first", numpy.ones(1))
            second = asyncio.create_task(sender.push(receiver.url, "second", numpy.ones(2)))
            while receiver.statistics().rejected == 0:
                await asyncio.sleep(0.001)
            assert not second.done()
            names = [(await receiver.receive(30)).name for _ in range(2)]  # type: ignore[union-attr]
            await second
            assert names == ["first", "second"]

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_node_that_is_killed(start_service: Callable[..., Any]) -> None:
    async def work() -> None:
        service = start_service("node")
        async with Node() as node:
            await node.pull(service.url, "weights")
            service.kill()
            with pytest.raises(errors.TransportFailure):
                await node.push(service.url, "x", numpy.ones(1))
            assert node.statistics().failed == 1

    asyncio.run(work())


def test_nodes_with_a_token() -> None:
    async def work() -> None:
        options: dict[str, Any] = {"host": "0.0.0.0", "framework": "numpy"}
        one, other = Node(token="the secret of the test", **options), Node(token="the secret of the test", **options)
        other_token = Node(token="some other secret text")
        async with one, other, other_token:
            url = one.url.replace("0.0.0.0", "127.0.0.1")
            await one.publish("x", numpy.ones(3))
            assert (await other.pull(url, "x")).tensor.tolist() == [1, 1, 1]
            with pytest.raises(errors.NotAuthorised):
                await other_token.pull(url, "x")

    asyncio.run(work())


def test_another_host_than_loopback_needs_a_token() -> None:
    with pytest.raises(ValueError, match=r"without a token.*host='127.0.0.1'.*token="):
        Node(host="0.0.0.0")


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Exception, match="in use"):
        asyncio.run(Node(port=taken.getsockname()[1]).start())


# ---- messages and cancelled coroutines


def test_a_message_that_comes_after_a_cancelled_receive_is_not_lost() -> None:
    async def work() -> None:
        async with Node() as sender, Node() as receiver:
            waiting = asyncio.create_task(receiver.receive())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            for name in ("first", "second"):
                await sender.push(receiver.url, name, numpy.ones(1))
            names = [(await receiver.receive(30)).name for _ in range(2)]  # type: ignore[union-attr]
            assert names == ["first", "second"]

    asyncio.run(work())


class Inbox:
    """In place of a C++ node: an inbox whose receive() waits until the test puts a message or closes it."""

    def __init__(self) -> None:
        self._messages: list[Any] = []
        self._changed = threading.Condition()

    def put(self, message: Any) -> None:
        with self._changed:
            self._messages.append(message)
            self._changed.notify()

    def receive(self, seconds: float) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._messages), seconds)
            return self._messages.pop(0) if self._messages else None


def test_a_message_for_a_coroutine_that_is_cancelled_meanwhile_goes_to_the_next() -> None:
    async def work() -> None:
        inbox = Inbox()
        receiver = Receiver(inbox)  # type: ignore[arg-type]
        first, second = (asyncio.create_task(receiver.receive(None)) for _ in range(2))
        await asyncio.sleep(0)
        receiver._kept.append(("x", None))  # type: ignore[arg-type]
        receiver._give_kept()  # `first` has the message now, but it does not run before it is cancelled
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await asyncio.wait_for(second, 30) == ("x", None)

    asyncio.run(work())


def test_receives_get_messages_in_the_order_in_which_they_ask() -> None:
    async def work() -> None:
        inbox = Inbox()
        receiver = Receiver(inbox)  # type: ignore[arg-type]
        waiting = [asyncio.create_task(receiver.receive(None)) for _ in range(5)]
        await asyncio.sleep(0)
        for n in range(5):
            inbox.put((str(n), None))
        assert [message[0] for message in await asyncio.gather(*waiting) if message] == ["0", "1", "2", "3", "4"]

    asyncio.run(work())


def test_a_receive_that_times_out_leaves_the_next_message_to_others() -> None:
    async def work() -> None:
        inbox = Inbox()
        receiver = Receiver(inbox)  # type: ignore[arg-type]
        assert await receiver.receive(0.001) is None
        inbox.put(("x", None))
        assert await receiver.receive(30) == ("x", None)
        assert await receiver.receive(0) is None

    asyncio.run(work())


def test_a_program_may_end_while_its_node_runs_and_a_receive_waits() -> None:
    program = (
        "import asyncio\n"
        "from shared_tensor.node import Node\n"
        "node = Node()\n"
        "async def main():\n"
        "    await node.start()\n"
        "    waiting = asyncio.create_task(node.receive())\n"
        "    await asyncio.sleep(0)\n"
        "asyncio.run(main())\n"
        "print('done')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_node_that_never_answers_costs_a_push_its_timeout() -> None:
    async def work(url: str) -> None:
        async with Node(push_timeout=0.2) as node:
            for call in (node.push(url, "x", numpy.ones(1)), node.pull(url, "x")):
                with pytest.raises(errors.RpcError):
                    await asyncio.wait_for(call, 30)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(work(f"http://127.0.0.1:{silent.getsockname()[1]}"))


def test_a_cancelled_push_or_pull_ends_in_its_thread() -> None:
    async def work() -> None:
        async with Node() as node:
            for begin in (lambda url: node.pull(url, "x"), lambda url: node.push(url, "x", numpy.ones(2))):
                with socket.create_server(("127.0.0.1", 0)) as silent:
                    silent.settimeout(30)
                    task = asyncio.create_task(begin(f"http://127.0.0.1:{silent.getsockname()[1]}"))
                    peer, _ = await asyncio.to_thread(silent.accept)  # the thread of the task has begun
                    with peer:
                        task.cancel()
                        with pytest.raises(asyncio.CancelledError):
                            await task
            for _ in range(100):
                if node.statistics().failed == 2:
                    break
                await asyncio.sleep(0.1)
            assert node.statistics().failed == 2

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_tensor_outlives_its_message_and_its_node() -> None:
    async def work() -> Any:
        async with Node() as sender, Node(framework="numpy") as receiver:
            await sender.push(receiver.url, "x", numpy.arange(1 << 20))
            return (await receiver.receive(30)).tensor  # type: ignore[union-attr]

    tensor = asyncio.run(work())
    gc.collect()
    assert numpy.array_equal(tensor, numpy.arange(1 << 20))


def test_a_node_outlives_an_event_loop_in_which_a_receive_waited() -> None:
    node = Node(framework="numpy")

    async def first() -> None:
        await node.start()
        assert await node.receive(0.001) is None

    async def second() -> None:
        names = set()
        async with Node() as sender:
            for name in ("x", "y"):  # the thread of the first loop may take one of them
                await sender.push(node.url, name, numpy.ones(2))
        while len(names) < 2:
            await asyncio.sleep(0.001)
            if (message := await node.receive(0)) is not None:
                names.add(message.name)
        assert names == {"x", "y"}
        await node.shutdown()

    asyncio.run(first())
    asyncio.run(asyncio.wait_for(second(), 60))
