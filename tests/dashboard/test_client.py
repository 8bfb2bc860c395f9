"""shared_tensor.js in a page: calls, batches, tasks, streams, tensors, errors."""

from __future__ import annotations

import json
import pathlib
import re
import time

import pytest
from conftest import SETUP, rpc

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/dashboard.md"


@pytest.fixture
def run_behind(new_page, daemon):
    """Like run, but each message that comes by WebSocket passes through `change`."""

    def run(change, body):
        def pass_on(socket):
            socket.connect_to_server().on_message(lambda message: socket.send(change(message)))

        page = new_page(allowed=("404",))  # a browser asks for the icon of a text
        page.route_web_socket("**/ws", pass_on)
        page.goto(f"{daemon.url}/dashboard/licences.txt")  # a page without calls of its own
        late = "new Promise((_, fail) => setTimeout(() => fail(new Error('no answer within 20 s')), 20_000))"
        return page.evaluate("() => Promise.race([" + late + ", (async () => {" + SETUP + body + "})()])")

    return run


def test_calls_by_position_by_name_and_over_the_web_socket(run):
    assert run(
        "return [await client.call('add', [1, 2]), await client.call('add', {a: 1, b: 3}),"
        " await client.socket.call('add', [1, 4])]"
    ) == [3, 4, 5]


def test_tensors_come_and_go_as_typed_arrays_by_each_transport(run):
    tensor = "new Tensor(new Float32Array([1, 2, 3, 4]), [2, 2])"
    for transport in "body", "base64", "data":
        answer = run(
            f"client.transport = '{transport}'; const y = await client.call('scale', [{tensor}, 3]);"
            "const z = await client.socket.call('scale', {x: y, factor: 2});"
            "return [y.dtype, y.shape, y.data.constructor.name, [...y.data], z.toNested()]"
        )
        assert answer == ["float32", [2, 2], "Float32Array", [3, 6, 9, 12], [[6, 12], [18, 24]]]


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("bool", "[1, 0]"),
        ("uint8", "[1, 255]"),
        ("int16", "[-5, 5]"),
        ("int64", "[9007199254740993n, -1n]"),
        ("float64", "[0.1, NaN]"),
        ("float16", "[0x3c00, 0xc000]"),
        ("bfloat16", "[0x3f80, 0xc000]"),
        ("complex64", "[1, 2, 3, 4]"),
    ],
)
def test_each_dtype_crosses_unchanged(run, dtype, values):
    same = run(
        f"const Elements = new Tensor([], [0], '{dtype}').data.constructor;"
        f"const x = new Tensor(new Elements({values}), [2], '{dtype}');"
        "await client.putTensor('same', x); const y = await client.getTensor('same');"
        "return [y.dtype, String(y.data) === String(x.data), [...y.numbers()].map(String)]"
    )
    assert same[:2] == [dtype, True]
    if "float16" in dtype:
        assert same[2] == ["1", "-2"]


def test_integers_of_64_bits_are_exact(run):
    got = run("try { await client.call('ramp', [9223372036854775809n]) } catch (e) { return e.data.got }")
    assert "9223372036854775809" in got
    assert run("return await client.call('add', [Infinity, 1])") == "Infinity"


def test_npy_files(run):
    assert run(
        "const x = new Tensor(new Int32Array([1, 2, 3, 4, 5, 6]), [2, 3]);"
        "await client.putNpy('six', formatNpy(x)); const y = parseNpy(await client.getNpy('six'));"
        "return [y.dtype, y.shape, [...y.data]]"
    ) == ["int32", [2, 3], [1, 2, 3, 4, 5, 6]]
    text = run("try { parseNpy(new Uint8Array(100)) } catch (e) { return e.message }")
    assert text == "this is not a .npy file"


def test_a_file_of_numpy_in_fortran_order_is_read(run, tmp_path):
    import numpy

    array = numpy.asfortranarray(numpy.arange(6, dtype="float64").reshape(2, 3))
    numpy.save(tmp_path / "f.npy", array)
    file = list((tmp_path / "f.npy").read_bytes())
    assert run("return parseNpy(new Uint8Array(given)).toNested()", file) == array.tolist()


def test_a_batch_has_results_and_errors_and_items_name_others(run):
    answers = run(
        "return (await client.batch([{method: 'scale', params: [new Tensor([1, 2]), 10]},"
        "{method: 'scale', params: {x: {$ref: {item: 0}}, factor: 3}}, {method: 'nobody'}]))"
        ".map((a) => a.error ? a.error.code : a.result.toNested())"
    )
    assert answers == [[10, 20], [30, 60], -32601]


def test_errors_have_code_data_and_a_text_that_says_what_was_wrong(run):
    error = run(
        "try { await client.call('add', [1, 'two']) } catch (e) {"
        " return [e instanceof SharedTensorError, e.code, e.data.parameter, e.message] }"
    )
    assert error == [True, -32602, "b", 'Invalid params: b: expected number, got string "two"']


def test_a_call_is_cancelled_by_its_signal_and_ends_at_its_deadline(run):
    name = run(
        "const stop = new AbortController(); setTimeout(() => stop.abort(), 100);"
        "try { await client.call('sleep', [60], {signal: stop.signal}) } catch (e) { return e.name }"
    )
    assert name == "AbortError"
    for caller in "client", "client.socket":
        code = run(f"try {{ await {caller}.call('sleep', [60], {{timeoutMs: 100}}) }} catch (e) {{ return e.code }}")
        assert code == -32002


def test_a_task_reports_progress_is_cancelled_and_keeps_its_error(run):
    seen = run(
        "await client.socket.open(); const seen = []; const task = await client.submit('sleep', [3]);"
        "const slept = await task.result((t) => seen.push(t.state)); return [seen, slept]"
    )
    assert "running" in seen[0] and seen[0][-1] == "completed" and seen[1] >= 3
    assert (
        run(
            "const task = await client.submit('sleep', [60]); await task.cancel();"
            "try { await task.result() } catch (e) { return e.code }"
        )
        == -32004
    )
    assert (
        run(
            "const task = await client.submit('fail', ['why']);"
            "try { await task.result() } catch (e) { return e.data.message }"
        )
        == "why"
    )


def test_streams_in_both_directions_beyond_a_window(run):
    assert run(
        "const call = client.stream('running_sum'); const sums = [];"
        "const feed = (async () => { for (let i = 0; i < 3000; i++) await call.write(1); await call.end(); })();"
        "for await (const sum of call) sums.push(sum); await feed; return [sums.length, await call.result]"
    ) == [3000, 3000]
    assert run(
        "const call = client.stream('scale_each', {factor: 2}); const seen = [];"
        "(async () => { for (let i = 0; i < 20; i++)"
        " await call.write(new Tensor(new Float32Array(200000).fill(i))); await call.end(); })();"
        "for await (const y of call) seen.push(y.data[199999]); return [seen, await call.result]"
    ) == [[2 * i for i in range(20)], 20]


def test_a_stream_ends_early_is_cancelled_and_fails(run):
    assert (
        run(
            "const call = client.stream('count', {up_to: 1000000}); let last;"
            "for await (const n of call) { last = n; if (n === 5) break; } return last"
        )
        == 5
    )
    assert (
        run(
            "const call = client.stream('count', {up_to: 1000000, seconds_between: 0.01}); await call.started;"
            "call.cancel(); try { await call.result } catch (e) { return e.code }"
        )
        == -32004
    )
    assert run(
        "const call = client.stream('tokens', {count: 5, width: 2, fail_after: 2}); const seen = [];"
        "try { for await (const t of call) seen.push(t.data[0]) } catch (e) { return [seen, e.data.message] }"
    ) == [[0, 1], "there is no token 2"]


@pytest.mark.parametrize("socket", ["before the WebSocket is open", "on an open WebSocket"])
def test_a_stream_is_cancelled_before_it_has_started(run, socket):
    opened = "await client.socket.open();" if "on an open" in socket else ""
    assert (
        run(
            opened + "const call = client.stream('count', {up_to: 5000, seconds_between: 0.02}); call.cancel();"
            "return await call.result.catch((error) => error.code)"
        )
        == -32004
    )


@pytest.mark.parametrize(
    "plain",
    [{"$tensor": {"data": [1]}}, {"$tensor": "only a word"}, {"$literal": {"a": 1}}, {"$x": 1, "y": [None, {"z": 2}]}],
)
def test_an_object_inside_a_literal_is_plain(run, plain):
    for caller in "client", "client.socket":
        assert run(f"return await {caller}.call('echo', [{{$literal: given}}])", plain) == plain


def test_the_members_of_an_object_inside_a_literal_are_values(run_behind):
    tensor = {"$tensor": {"dtype": "int64", "shape": [1], "data": [7]}}
    answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"$literal": {"$tensor": {"data": tensor}}}})
    got = run_behind(lambda _: answer, "return (await client.socket.call('echo', [1])).$tensor.data.dtype")
    assert got == "int64"


@pytest.mark.parametrize(
    "bad",
    [
        '{"jsonrpc": "2.0", "id": 1, "result": {"$tensor": {"dtype": "float32", "shape": [3], "data": [1, 2]}}}',
        '{"jsonrpc": "2.0", "id": 1, "result": {"$tensor": {"dtype": "float33", "shape": [3], "base64": ""}}}',
        '{"jsonrpc": "2.0", "id": 1, "result": {"$tensor": {"dtype": "float32", "shape": [3], "body": {"offset": 0}}}}',
        '{"jsonrpc": "2.0", "id": 1, "result"',
        b"\x01",
    ],
)
def test_an_answer_that_cannot_be_read_is_an_error_of_its_call_and_later_calls_work(run_behind, bad):
    message = run_behind(
        lambda answer: bad if json.loads(answer).get("id") == 1 else answer,
        "const error = await client.socket.call('add', [1, 2]).catch((e) => e);"
        "await new Promise((done) => setTimeout(done, 50)); const later = await client.socket.call('add', [1, 3]);"
        "return [error instanceof SharedTensorError, error.code, error.message, later]",
    )
    assert message[:2] == [True, None]
    assert message[2].startswith("a message of the daemon cannot be read: ")
    assert message[3] == 4


def test_an_item_of_a_stream_that_cannot_be_read_fails_and_cancels_the_call(run_behind, daemon):
    def change(message):
        return message.replace('"value":3', '"value":{"$tensor":{"dtype":"float33","base64":""}}')

    seen = run_behind(
        change,
        "const call = client.stream('count', {up_to: 1000000, seconds_between: 0.01}); const seen = [];"
        "try { for await (const n of call) seen.push(n) } catch (e) { seen.push(e.message) } return seen",
    )
    assert seen[:2] == [1, 2] and "cannot be read" in seen[2]
    for _ in range(100):
        calls = rpc(daemon.url, "server.calls")["result"]["calls"]
        if not any(one["function"] == "count" for one in calls):
            return
        time.sleep(0.1)
    pytest.fail("the call runs on")


def test_the_socket_connects_again_after_its_end(run):
    assert run(
        "await client.socket.call('add', [1, 2]); client.close(); await new Promise((r) => setTimeout(r, 200));"
        "return [client.socket.isOpen, await client.socket.call('add', [1, 2])]"
    ) == [False, 3]


def test_a_call_right_after_close_connects_again(run):
    assert run(
        "await client.socket.open(); const slow = client.socket.call('sleep', [60]).catch((error) => error.message);"
        "await new Promise((done) => setTimeout(done)); client.close();"
        "const sum = await client.socket.call('add', [1, 2]); await new Promise((done) => setTimeout(done, 200));"
        "return [sum, await slow, await client.socket.call('add', [1, 3])]"
    ) == [3, "the WebSocket was closed", 4]


def test_a_socket_that_is_closed_while_it_connects_fails_its_calls_and_connects_again(new_page, daemon):
    page = new_page(allowed=("404", "WebSocket is closed before the connection is established"))
    page.goto(f"{daemon.url}/dashboard/licences.txt")
    assert page.evaluate(
        "async () => {" + SETUP + "const first = client.socket.call('add', [1, 2]).catch((error) => error.code);"
        "client.close(); const sum = await client.socket.call('add', [1, 3]);"
        "return [await first, sum, client.socket.isOpen, await client.socket.call('add', [1, 4])] }"
    ) == [None, 4, True, 5]


def test_the_example_of_the_documentation_runs(run):
    example = re.search(r"```js\n(import .*?)```", PAGE.read_text(), re.DOTALL).group(1)
    body = re.sub(r"(?m)^(import .*|const client = .*)$", "", example)
    lines = run(
        "const lines = [], abort = new AbortController();"
        "const console = {log: (...values) => lines.push(values.map(String).join(' '))};" + body + "return lines"
    )
    assert lines[0] == "float32 2,2 10,20,30,40"
    assert lines[1].endswith("[object Object]")
    assert lines[-1].startswith("-32602 ") and "expected number" in lines[-1]
    assert lines[-3:-1] == ["1", "1"]  # the stream's item and the call's result
