"""Each view shows what a real daemon has."""

from __future__ import annotations

import re
import threading
import time
import urllib.request

import numpy
import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import GIVEN, PATIENCE_MS, Traffic, open_view, rpc, start
from playwright.sync_api import expect
from ports import free_port

VIEWS = ["overview", "calls", "functions/scale", "tensors", "memory", "models", "server"]


def row(page, name: str):
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))


def test_calls_are_counted_by_function_while_they_come(page, daemon, screenshot):
    with Traffic(daemon.url):
        expect(row(page, "scale").locator("td").first).not_to_have_text("0")
        expect(row(page, "scale").locator("td").nth(1)).to_have_text(re.compile("µs|ms"))
        expect(row(page, "fail").locator("td").last).to_have_text(re.compile("[1-9]"))
        expect(page.get_by_role("img", name=re.compile("Calls a second: answered [1-9]"))).to_be_visible()
        expect(page.get_by_role("img", name=re.compile("Time of a call: p50 .*s, p90 .*s, p99"))).to_be_visible()
        page.wait_for_timeout(12_000 if GIVEN["screenshots"] else 0)
        screenshot(page, "overview")
    assert row(page, "server.info").count() == 0  # the page's own requests are no calls of functions


def calls_of(url: str, function: str) -> list[dict]:
    return [one for one in rpc(url, "server.calls")["result"]["calls"] if one["function"] == function]


def test_a_running_call_is_shown_and_cancelled(page, daemon):
    answers = []
    caller = threading.Thread(target=lambda: answers.append(rpc(daemon.url, "sleep", [60])))
    caller.start()
    open_view(page, daemon.url, "calls")
    end = time.monotonic() + PATIENCE_MS / 1000
    while not (calls := calls_of(daemon.url, "sleep")):
        assert time.monotonic() < end, "the call does not come"
    [call] = calls
    cancel = page.get_by_role("button", name=f"Cancel sleep {call['id']}", exact=True)
    line = page.get_by_role("row").filter(has=cancel)
    expect(line).to_contain_text("running")
    expect(line.get_by_role("progressbar")).to_be_visible()
    cancel.click()
    expect(page.locator("#message")).to_have_text("sleep was cancelled.")
    caller.join(20)
    assert answers[0]["error"]["code"] == -32004
    expect(page.get_by_text("No call runs or waits.")).to_be_visible()


def test_a_task_shows_progress_is_cancelled_and_another_gives_its_result(page, daemon):
    open_view(page, daemon.url, "calls")
    slow = rpc(daemon.url, "task.submit", {"method": "sleep", "params": [60]})["result"]["id"]
    button = page.get_by_role("button", name=f"Cancel of sleep, task {slow}")
    expect(button).to_be_visible()
    line = page.get_by_role("row").filter(has=button)
    expect(line.get_by_role("progressbar")).to_be_visible()
    button.click()
    expect(page.locator("#message")).to_contain_text("was cancelled")
    assert rpc(daemon.url, "task.get", [slow])["result"]["state"] == "cancelled"
    done = rpc(daemon.url, "task.submit", {"method": "scale", "params": [[1.5, 2.5, 3.5], 2]})["result"]["id"]
    page.get_by_role("button", name=f"Result of scale, task {done}").click()
    expect(page.locator(".result").first).to_contain_text("float32 [3]")
    page.get_by_label("State").select_option("cancelled")
    expect(page.get_by_role("button", name=f"Result of scale, task {done}")).to_have_count(0)


def test_a_named_tensor_is_published_shown_downloaded_and_deleted(page, daemon, screenshot, tmp_path):
    values = numpy.add.outer(numpy.sin(numpy.arange(48) / 6), numpy.cos(numpy.arange(64) / 9)).astype("float32")
    numpy.save(tmp_path / "waves.npy", values)
    open_view(page, daemon.url, "tensors")
    page.get_by_label("Name", exact=True).fill("waves")
    page.get_by_label("tensor, from").select_option(".npy file")
    page.get_by_label("tensor: .npy file").set_input_files(tmp_path / "waves.npy")
    for version in 1, 2:
        page.get_by_role("button", name="Publish").click()
        expect(page.locator("#message")).to_have_text(f"waves was published as version {version}.")
    line = row(page, "waves")
    expect(line.locator("td").first).to_have_text("2")
    page.get_by_role("button", name="Show waves").click()
    expect(page.locator(".result").first).to_contain_text("float32 [48, 64], 12 KiB")
    page.get_by_role("button", name="Histogram").click()
    expect(page.get_by_role("img", name=re.compile("How many elements"))).to_be_visible()
    page.get_by_role("button", name="Heat map").click()
    expect(page.get_by_role("img", name="Heat map of 48 rows and 64 columns, from -2 to 2")).to_be_visible()
    page.evaluate("document.getElementById('message').textContent = ''")
    screenshot(page, "tensors")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download .npy").click()
    assert numpy.array_equal(numpy.load(download.value.path()), values)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download .safetensors").click()
    assert values.tobytes() in download.value.path().read_bytes()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete waves").click()
    expect(page.locator("#message")).to_have_text("waves was deleted.")
    assert rpc(daemon.url, "tensor.get", ["waves"])["error"]["code"] == -32005


def test_a_set_of_tensors_shows_its_members(page, daemon):
    tensors = {"bias": {"$tensor": {"data": [0.5, 1.5]}}, "layer/0": {"$tensor": {"data": [[1.0, 2.0], [3.0, 4.0]]}}}
    rpc(daemon.url, "tensor.put", {"name": "weights", "tensors": tensors})
    open_view(page, daemon.url, "tensors")
    expect(row(page, "weights").locator("td").nth(2)).to_have_text("2")
    page.get_by_role("button", name="Show weights", exact=True).click()
    expect(row(page, "layer/0")).to_contain_text("[2, 2]")
    page.get_by_role("button", name="Show weights/layer/0").click()
    expect(page.locator(".result").last).to_contain_text("from 1 to 4, mean 2.5")


def test_tensors_of_8_bits_are_shown_as_numbers_and_pairs_of_4_bits_are_not(page, daemon):
    small = {"dtype": "float8_e4m3fn", "shape": [2, 2], "data": [[1.5, 2], [3, 4]]}
    pairs = {"dtype": "float4_e2m1fn_x2", "shape": [3], "base64": "AQID"}
    for name, tensor in ("small", small), ("pairs", pairs):
        rpc(daemon.url, "tensor.put", {"name": name, "tensor": {"$tensor": tensor}})
    open_view(page, daemon.url, "tensors")
    page.get_by_role("button", name="Show small").click()
    expect(page.locator(".result").first).to_contain_text("from 1.5 to 4, mean 2.63")
    page.get_by_role("button", name="Heat map").click()
    expect(page.get_by_role("img", name="Heat map of 2 rows and 2 columns, from 1.5 to 4")).to_be_visible()
    page.get_by_role("button", name="Download .npy").click()
    expect(page.locator("#message")).to_have_text(".npy has no float8_e4m3fn")
    page.get_by_role("button", name="Show pairs").click()
    text = "pairs: float4_e2m1fn_x2 [3], 3 B; its bytes have two numbers each, not shown here"
    expect(page.locator(".result").first).to_contain_text(text)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download .safetensors").click()
    assert download.value.path().read_bytes().endswith(bytes([1, 2, 3]))


def test_leases_are_drawn_by_client_listed_and_revoked(page, daemon, screenshot):
    request = urllib.request.Request(
        daemon.url + "/jsonrpc",
        headers={"Content-Type": "application/json", "Shared-Tensor-Accept": "url"},
        data=b'{"jsonrpc": "2.0", "id": 1, "method": "ramp", "params": [1000000]}',
    )
    leases = [urllib.request.urlopen(request).read() for _ in range(2)]
    assert all(b"/tensors/l-" in lease for lease in leases)
    for held in rpc(daemon.url, "object.list")["result"]["objects"]:  # of other tests
        rpc(daemon.url, "object.release", {"id": held["id"]})
    rpc(daemon.url, "vocabulary.make", [["one", "two"]])
    open_view(page, daemon.url, "memory")
    expect(page.get_by_role("img", name="Memory lent, by client and device: cpu 7.63 MiB")).to_be_visible()
    expect(page.get_by_role("group", name="Objects")).to_contain_text("example.vocabulary")
    revoke = page.get_by_role("button", name="Revoke lease")
    expect(revoke).to_have_count(2)
    screenshot(page, "memory")
    revoke.first.click()
    expect(revoke).to_have_count(1)
    revoke.first.click()
    expect(page.get_by_text("No tensor is lent to a client.")).to_be_visible()
    page.get_by_role("button", name="Release").first.click()
    expect(page.get_by_text("Clients hold no objects.")).to_be_visible()


def test_models_are_listed_and_a_load_that_is_not_allowed_tells_why(page, daemon):
    open_view(page, daemon.url, "models")
    expect(row(page, "vad")).to_contain_text("vad.forward")
    page.get_by_label("name", exact=True).fill("other")
    page.get_by_label("file", exact=True).fill("other.pt")
    page.get_by_role("button", name="Load", exact=True).click()
    expect(page.locator("#message")).to_contain_text("start it with --model-folder")


def test_the_server_view_shows_health_transports_options_with_their_origin_and_processes(new_page):
    environment = {"PATH": "/usr/bin:/bin", "SHARED_TENSOR_MAX_TASKS": "77"}
    with start_with(environment, "--processes", "2", "--timeout", "5s") as daemon:
        page = new_page()
        open_view(page, daemon.url, "server")
        expect(page.locator(".tile").filter(has_text="Ready")).to_contain_text("yes")
        expect(row(page, "cuda_ipc")).to_contain_text("not usable")
        expect(row(page, "timeout")).to_contain_text("5000ms")
        expect(row(page, "timeout")).to_contain_text("--timeout")
        expect(row(page, "max-tasks")).to_contain_text("SHARED_TENSOR_MAX_TASKS")
        expect(row(page, "processes")).to_contain_text("2")
        expect(row(page, "cache-bytes")).to_contain_text("default")
        page.get_by_label("only those that were set").check()
        expect(row(page, "cache-bytes")).to_have_count(0)
        expect(row(page, "call_timeout_ms")).to_contain_text("5 s")
        workers = page.get_by_role("group", name="Worker processes").get_by_role("row")
        expect(workers).to_have_count(3)
        expect(workers.nth(1)).to_contain_text("ready")
        page.goto("about:blank")  # what it asks of a daemon that has ended are errors


def start_with(environment, *options):
    from daemon import Daemon

    return Daemon(GIVEN["daemon"], "--load", GIVEN["plugin"], *options, env=environment)


def test_the_page_tells_when_the_server_ends_and_goes_on_when_it_is_back(new_page):
    page = new_page(allowed=("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "WebSocket connection"))
    port = str(free_port())
    with start("--port", port) as daemon:
        open_view(page, daemon.url, "overview")
    expect(page.locator("#connection")).to_have_attribute("data-state", "lost")
    with start("--port", port):
        expect(page.locator("#connection")).to_have_attribute("data-state", "live")
        page.goto("about:blank")


def cut_at(page, method: str) -> list[str]:
    """Ends the WebSocket each time when the page calls `method`, before the daemon gets the call. Returns the list of
    the calls by fetch, which grows."""
    fetched = []

    def pass_on(socket):
        server = socket.connect_to_server()

        def to_server(message):
            if f'"{method}"' not in message:
                return server.send(message)
            server.close()
            return socket.close()

        socket.on_message(to_server)

    page.route_web_socket("**/ws", pass_on)
    page.on("request", lambda request: fetched.append(request.post_data or "") if "jsonrpc" in request.url else None)
    return fetched


def test_a_read_is_repeated_after_the_end_of_the_connection(new_page, daemon):
    rpc(daemon.url, "tensor.put", {"name": "read_again", "tensor": {"$tensor": {"data": [1]}}})
    page = new_page()
    fetched = cut_at(page, "tensor.list")
    open_view(page, daemon.url, "tensors")
    expect(row(page, "read_again")).to_be_visible()
    assert any('"tensor.list"' in body for body in fetched)


def test_a_change_is_not_repeated_after_the_end_of_the_connection(new_page, daemon):
    rpc(daemon.url, "tensor.put", {"name": "kept", "tensor": {"$tensor": {"data": [1]}}})
    page = new_page()
    fetched = cut_at(page, "tensor.delete")
    page.on("dialog", lambda dialog: dialog.accept())
    open_view(page, daemon.url, "tensors")
    page.get_by_role("button", name="Delete kept").click()
    expect(page.locator("#message")).to_contain_text("it is not known whether tensor.delete was carried out")
    assert not any('"tensor.delete"' in body for body in fetched)
    expect(row(page, "kept")).to_be_visible()
    expect(page.locator("#connection")).to_have_text(re.compile("^live"))  # it connects again


def live_objects(page, prototype: str) -> int:
    """How many objects of a prototype there are after a collection of garbage."""
    client = page.context.new_cdp_session(page)
    wanted = client.send("Runtime.evaluate", {"expression": prototype})["result"]["objectId"]
    found = client.send("Runtime.queryObjects", {"prototypeObjectId": wanted})["objects"]["objectId"]
    count = {"objectId": found, "functionDeclaration": "function () { return this.length; }", "returnByValue": True}
    answer = client.send("Runtime.callFunctionOn", count)["result"]["value"]
    client.detach()
    return answer


def test_charts_go_with_their_view(page, daemon):
    for view in "overview", "memory", "overview", "calls":
        page.get_by_role("link", name={"calls": "Calls and tasks"}.get(view, view.capitalize()), exact=True).click()
        if view == "overview":
            expect(page.locator(".uplot canvas")).to_have_count(3)
    expect(page.locator("canvas")).to_have_count(0)
    for _ in range(50):  # a frame that was asked for may hold the last one
        if live_objects(page, "HTMLCanvasElement.prototype") == 0:
            return
        page.wait_for_timeout(100)
    assert live_objects(page, "HTMLCanvasElement.prototype") == 0


def test_charts_take_the_colours_of_the_scheme_when_it_changes(page):
    expect(page.locator(".uplot canvas")).to_have_count(3)
    page.evaluate("for (const one of document.querySelectorAll('canvas')) one.dataset.old = 'light'")
    page.emulate_media(color_scheme="dark")
    expect(page.locator("canvas[data-old]")).to_have_count(0)
    expect(page.locator(".uplot canvas")).to_have_count(3)


def test_the_log_is_shown_filtered_and_followed(new_page):
    page = new_page()
    with start("--service-name", "example") as daemon:
        rpc(daemon.url, "log.level", ["debug"])
        rpc(daemon.url, "log.level", ["info"])
        open_view(page, daemon.url, "server")
        log = page.get_by_role("log", name="Lines of the log")
        line = log.get_by_role("paragraph")
        expect(line.filter(has_text="listening on").first).to_be_visible()
        expect(line.filter(has_text="is debug now")).to_have_text(re.compile("^2.*Z warn the level of the log is"))
        page.get_by_label("Lowest level").select_option("warn")
        expect(line.filter(has_text="listening on")).to_have_count(0)  # a hidden one has no role
        expect(line.filter(has_text="is debug now")).to_be_visible()
        rpc(daemon.url, "log.level", ["warn"])
        expect(line.filter(has_text="is warn now; it was info")).to_be_visible()
        page.get_by_label("follow").uncheck()
        page.wait_for_timeout(500)  # an answer that was on its way brings no line of what follows
        rpc(daemon.url, "log.level", ["info"])
        page.wait_for_timeout(2500)
        expect(line.filter(has_text="is info now; it was warn")).to_have_count(0)
        page.get_by_label("follow").check()
        expect(line.filter(has_text="is info now; it was warn")).to_be_visible()
        page.get_by_label("Lowest level").select_option("trace")
        expect(line.filter(has_text="listening on").first).to_be_visible()
        scrolled = page.evaluate("(log) => log.scrollHeight - log.scrollTop - log.clientHeight", log.element_handle())
        assert scrolled < 8
        page.goto("about:blank")


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_no_view_has_a_violation_that_axe_finds(new_page, daemon, look):
    options = {"color_scheme": "dark" if look == "dark" else "light"}
    page = new_page(**options)
    if look == "phone":
        page.set_viewport_size({"width": 390, "height": 844})
    axe = Axe()
    for view in VIEWS:
        open_view(page, daemon.url, view)
        page.wait_for_timeout(300)
        found = axe.run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]})
        assert found.violations_count == 0, f"{view}: {found.generate_report()}"
        wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not wide, f"{view} is wider than the window"


def test_the_keyboard_reaches_the_content_and_every_view(page, daemon):
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.get_by_role("link", name="Functions").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Functions")
    page.get_by_role("button", name="add", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="add", exact=True)).to_be_visible()
    page.get_by_label("a number").fill("2")
    page.get_by_label("b number").fill("40")
    page.keyboard.press("Enter")
    expect(page.locator(".result")).to_have_text("42")
