"""The compute service."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy
import pytest
import services
from ports import free_port

from shared_tensor import errors
from shared_tensor.compute import (
    AsyncComputeClient,
    AsyncComputeFunction,
    AsyncComputeServer,
    AsyncModelComputeFunction,
    CompressedTensorCodec,
    ComputeClient,
    ComputeFunction,
    ComputeServer,
    ExponentialBackoff,
    FixedDelay,
    ModelComputeFunction,
    RetryStrategy,
)


def torch_or_skip() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        pytest.skip("torch is not installed in this environment")


class Function(ComputeFunction):
    """Runs a function of the test."""

    framework = "numpy"

    def __init__(self, function: Callable[[Any], Any] = lambda tensor: tensor) -> None:
        self.function = function
        self.events: list[str] = []

    def setup(self) -> None:
        self.events.append("setup")

    def compute(self, input_tensor: Any) -> Any:
        return self.function(input_tensor)

    def teardown(self) -> None:
        self.events.append("teardown")


@contextlib.contextmanager
def serving(function: Callable[[Any], Any], **options: Any) -> Iterator[ComputeServer]:
    with ComputeServer(Function(function), port=0, **options) as server:
        yield server


@pytest.fixture(scope="module")
def address(start_service: Callable[..., Any]) -> str:
    return str(start_service("compute").url.removeprefix("http://"))


@pytest.fixture
def client(address: str) -> Iterator[ComputeClient]:
    with ComputeClient(address) as client:
        yield client


X = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)


def test_the_result_is_that_of_the_function(client: ComputeClient) -> None:
    result = client.compute(X)
    assert isinstance(result, numpy.ndarray) and result.dtype == numpy.float32
    assert numpy.array_equal(result, X * 2)


def test_an_address_may_be_a_url(address: str) -> None:
    with ComputeClient(f"http://{address}") as client:
        assert client.connect()


@pytest.mark.parametrize("shape", [(64,), (1, 64), (3, 5, 64), (4096, 64)])
def test_a_models_results_are_bit_equal_to_local_ones(
    start_service: Callable[..., Any], shape: tuple[int, ...]
) -> None:
    torch = torch_or_skip()
    service = start_service("model")
    torch.manual_seed(1)
    x = torch.randn(shape)
    with ComputeClient(service.url) as client, torch.no_grad():
        result = client.compute(x)
        assert isinstance(result, torch.Tensor)
        assert torch.equal(result, services.make_model()(x))
        assert client.get_service_info()["service_name"] == "Sequential"
    service.kill()


def test_an_async_models_results_are_bit_equal_to_local_ones() -> None:
    torch = torch_or_skip()
    model = services.make_model()

    async def work() -> Any:
        server = AsyncComputeServer(AsyncModelComputeFunction(model, "cpu"), port=0)
        async with server, AsyncComputeClient(server.url) as client:
            return await asyncio.gather(*(client.compute(torch.full((2, 64), float(n))) for n in range(20)))

    with torch.no_grad():
        expected = [model(torch.full((2, 64), float(n))) for n in range(20)]
    assert all(map(torch.equal, asyncio.run(work()), expected))


def test_a_model_is_set_to_evaluation() -> None:
    torch = torch_or_skip()
    model = torch.nn.Dropout(0.9)
    function = ModelComputeFunction(model, "cpu", "drop")
    assert not model.training
    assert torch.equal(function.compute(torch.ones(100)), torch.ones(100))
    assert function.get_info() == {"name": "drop", "device": "cpu"}


def test_statistics_count_calls_and_failures(client: ComputeClient) -> None:
    assert client.get_statistics()["success_rate"] == 0
    for _ in range(3):
        client.compute(X)
    with pytest.raises(errors.FunctionFailed, match="no elements"):
        client.compute(numpy.ones(0))
    statistics = client.get_statistics()
    assert (statistics["total_requests"], statistics["successful_requests"], statistics["failed_requests"]) == (4, 3, 1)
    assert statistics["success_rate"] == 0.75
    assert statistics["avg_compute_time_ms"] > 0 and statistics["avg_network_time_ms"] > 0
    parts = statistics["avg_compute_time_ms"] + statistics["avg_network_time_ms"]
    assert parts == pytest.approx(statistics["avg_total_time_ms"])


def test_service_info(client: ComputeClient) -> None:
    before = client.get_service_info()["total_requests"]
    client.compute(X)
    info = client.get_service_info()
    assert info.pop("uptime_seconds") > 0
    assert info == {
        "service_name": "double",
        "version": "7",
        "device": "cpu",
        "total_requests": before + 1,
        "custom_info": {"rounds": 1},
    }


def test_health(start_service: Callable[..., Any]) -> None:
    service = start_service("compute")
    with ComputeClient(service.url, retry_strategy=FixedDelay(1, 0.01)) as client:
        assert client.connect() and client.health_check()
        service.kill()
        assert not client.health_check() and not client.connect()
        with pytest.raises(errors.TransportFailure):
            client.compute(X)


@pytest.mark.parametrize(
    ("strategy", "tries"),
    [
        (FixedDelay(max_retries=2, delay=0.01), 3),
        (ExponentialBackoff(max_retries=4, initial_delay=0.001, max_delay=0.002), 5),
        (RetryStrategy(), 1),
    ],
)
def test_a_strategy_says_how_often_a_call_is_sent(strategy: RetryStrategy, tries: int) -> None:
    with ComputeClient("127.0.0.1:1", retry_strategy=strategy) as client:
        with pytest.raises(errors.TransportFailure):
            client.compute(X)
        assert client._client.last_receipt is not None and client._client.last_receipt.tries == tries


def test_a_fixed_delay_is_not_random() -> None:
    with ComputeClient("127.0.0.1:1", retry_strategy=FixedDelay(2, 0.05)) as client:
        started = time.monotonic()
        with pytest.raises(errors.TransportFailure):
            client.compute(X)
        assert time.monotonic() - started >= 0.1


class UntilServed(RetryStrategy):
    """A strategy of a user: after the first failure it starts the server."""

    def __init__(self, start: Callable[[], None]) -> None:
        self.start, self.failures = start, 0

    def execute(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return func(*args, **kwargs)
        except errors.TransportFailure:
            self.failures += 1
            self.start()
            return func(*args, **kwargs)


def test_a_strategy_of_a_user() -> None:
    port = free_port()
    server = ComputeServer(Function(lambda tensor: tensor + 1), port=port)
    strategy = UntilServed(server.start)
    with ComputeClient(f"127.0.0.1:{port}", retry_strategy=strategy, wait_for_server=0.0) as client:
        assert numpy.array_equal(client.compute(X), X + 1)
        assert strategy.failures == 1 and client.get_statistics()["failed_requests"] == 1
    server.stop()
    with pytest.raises(TypeError, match="`async def`"):
        AsyncComputeClient("127.0.0.1:1", retry_strategy=strategy)


def test_a_server_that_stops_is_not_healthy() -> None:
    entered, leave = threading.Event(), threading.Event()

    def wait(tensor: Any) -> Any:
        entered.set()
        assert leave.wait(30)
        return tensor

    with serving(wait) as server, ComputeClient(server.url) as client, ThreadPoolExecutor(2) as threads:
        call = threads.submit(client.compute, X)
        assert entered.wait(30)
        stopping = threads.submit(server.stop, 30)
        deadline = time.monotonic() + 30
        while client.health_check():
            assert time.monotonic() < deadline
        leave.set()
        assert numpy.array_equal(call.result(), X)
        stopping.result()


def test_each_server_serves_its_own_kind_of_function() -> None:
    with pytest.raises(TypeError, match="use AsyncComputeServer"):
        ComputeServer(services.AsyncDouble(), port=0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="use ComputeServer"):
        AsyncComputeServer(Function(), port=0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "function"), [(ComputeServer, Function()), (AsyncComputeServer, services.AsyncDouble())]
)
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_another_host_than_loopback_needs_a_token(kind: Any, function: Any, host: str) -> None:
    with pytest.raises(ValueError, match=r"without a token.*host='127.0.0.1'.*token_file="):
        kind(function, host=host)


def test_a_server_with_tokens(tmp_path: Any) -> None:
    tokens = tmp_path / "tokens"
    tokens.touch(0o600)
    tokens.write_text("trainer:a-secret-of-the-test\n")
    with serving(lambda tensor: tensor + 1, host="0.0.0.0", token_file=str(tokens)) as server:
        address = server.url.replace("0.0.0.0", "127.0.0.1")
        with ComputeClient(address, token="a-secret-of-the-test") as client:
            assert numpy.array_equal(client.compute(X), X + 1)
        with pytest.raises(errors.NotAuthorised):
            ComputeClient(address, token="another-secret-text").connect()


class CountingProxy:
    """Passes connections on to a server, and counts the bytes. Its clients must name the server's
    port in the Host header."""

    def __init__(self, port: int) -> None:
        self.bytes = 0
        self._to = port
        self._clients: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._hosts = self.address.encode(), f"127.0.0.1:{port}".encode()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                self._clients.append(near)
                far = socket.create_connection(("127.0.0.1", self._to))
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError), target:
            while data := source.recv(1 << 16):
                self.bytes += len(data)
                target.sendall(data.replace(*self._hosts))

    def drop_clients(self) -> None:
        while self._clients:
            with contextlib.suppress(OSError):  # closed
                self._clients.pop().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


@pytest.mark.parametrize(("codec", "is_small"), [(None, False), (CompressedTensorCodec(compression_level=6), True)])
def test_a_codec_compresses_on_the_network(codec: CompressedTensorCodec | None, is_small: bool) -> None:
    x = numpy.repeat(numpy.arange(1000, dtype=numpy.float32), 1000)
    with serving(lambda tensor: tensor * 2, codec=codec) as server:
        proxy = CountingProxy(int(server.url.rpartition(":")[2]))
        with ComputeClient(proxy.address, codec=codec, local_socket="none") as client:
            assert numpy.array_equal(client.compute(x), x * 2)
        proxy.close()
    assert (proxy.bytes < x.nbytes / 10) is is_small


@pytest.mark.parametrize(("idempotent", "calls"), [(True, 2), (False, 1)])
def test_a_call_whose_connection_breaks_is_repeated_if_that_does_no_harm(idempotent: bool, calls: int) -> None:
    seen = []

    def lose_the_first_answer(tensor: Any) -> Any:
        seen.append(tensor)
        if len(seen) == 1:
            proxy.drop_clients()
        return tensor * 2

    with serving(lose_the_first_answer) as server:
        proxy = CountingProxy(int(server.url.rpartition(":")[2]))
        strategy = FixedDelay(max_retries=3, delay=0.01)
        client = ComputeClient(proxy.address, 30, strategy, idempotent=idempotent, local_socket="none")
        with client, contextlib.nullcontext() if idempotent else pytest.raises(errors.TransportFailure) as raised:
            assert numpy.array_equal(client.compute(X), X * 2)
        proxy.close()
    assert len(seen) == calls
    assert idempotent or raised.value.may_have_run


def test_a_codec_has_levels() -> None:
    with pytest.raises(ValueError, match=r"use 1 \(fast\) to 9 \(small\)"):
        CompressedTensorCodec(10)


def test_a_server_sets_its_function_up_and_tears_it_down() -> None:
    function = Function()
    server = ComputeServer(function, port=0)
    assert function.events == []
    with server:
        assert function.events == ["setup"]
        assert not server.wait_for_termination(0)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(server.wait_for_termination)
            server.stop()
            assert waiting.result(timeout=30)
    assert function.events == ["setup", "teardown"]


def test_a_server_that_cannot_start_tears_its_function_down() -> None:
    function = Function()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = ComputeServer(function, port=taken.getsockname()[1])
        with pytest.raises(Exception, match="in use"):
            server.start()
    assert function.events == ["setup", "teardown"]


def test_max_workers_calls_run_at_once() -> None:
    together = threading.Barrier(3)

    def meet(tensor: Any) -> Any:
        together.wait(timeout=30)
        return tensor

    with serving(meet, max_workers=3) as server, ComputeClient(server.url) as client, ThreadPoolExecutor(3) as threads:
        assert len(list(threads.map(client.compute, [X, X, X]))) == 3


def test_one_worker_runs_one_call_at_a_time_and_information_does_not_wait() -> None:
    running = threading.Semaphore(1)
    entered, leave = threading.Event(), threading.Event()

    def alone(tensor: Any) -> Any:
        assert running.acquire(blocking=False), "two calls run at once"
        entered.set()
        assert leave.wait(30)
        running.release()
        return tensor

    with serving(alone) as server, ComputeClient(server.url) as client, ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(client.compute, X) for _ in range(4)]
        assert entered.wait(30)
        assert client.get_service_info()["total_requests"] == 1
        leave.set()
        assert [numpy.array_equal(call.result(), X) for call in calls] == [True] * 4


def test_the_async_server_in_another_process(start_service: Callable[..., Any]) -> None:
    async def work() -> dict[str, Any]:
        async with AsyncComputeClient(start_service("async_compute").url) as client:
            assert await client.connect() and await client.health_check()
            results = await asyncio.gather(*(client.compute(X + n) for n in range(50)))
            assert all(numpy.array_equal(result, (X + n) * 2) for n, result in enumerate(results))
            assert (await client.get_service_info())["total_requests"] == 50
            return client.get_statistics()

    statistics = asyncio.run(work())
    assert statistics["total_requests"] == 50 and statistics["success_rate"] == 1
    assert statistics["avg_compute_time_ms"] > 0 and statistics["avg_network_time_ms"] > 0


class Waiting(AsyncComputeFunction):
    """Waits until it is cancelled."""

    def __init__(self) -> None:
        self.entered, self.cancelled = asyncio.Event(), asyncio.Event()
        self.loop: Any = None

    async def compute(self, input_tensor: Any) -> Any:
        self.loop = asyncio.get_running_loop()
        self.entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def test_cancelling_an_async_call_cancels_the_coroutine_in_the_servers_loop() -> None:
    async def work() -> None:
        function = Waiting()
        server = AsyncComputeServer(function, port=0)
        async with server, AsyncComputeClient(server.url) as client:
            call = asyncio.create_task(client.compute(X))
            await asyncio.wait_for(function.entered.wait(), 30)
            assert function.loop is asyncio.get_running_loop()
            call.cancel()
            await asyncio.wait_for(function.cancelled.wait(), 30)
            with pytest.raises(asyncio.CancelledError):
                await call
            assert client.get_statistics()["failed_requests"] == 1

    asyncio.run(work())
