"""A daemon with the example plugin, and pages of a headless Chromium. A test fails if its page logs an error."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import threading
import urllib.error
import urllib.request

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from daemon import Daemon

GIVEN = json.loads(os.environ["DASHBOARD_TEST"])
PATIENCE_MS = 20_000
WIDE = {"width": 1280, "height": 800}
SETUP = (
    "const {Client, Tensor, SharedTensorError, parseNpy, formatNpy} = await import('/shared_tensor.js');"
    " const client = new Client();"
)
expect.set_options(timeout=PATIENCE_MS)


def start(*options: str) -> Daemon:
    return Daemon(GIVEN["daemon"], "--load", GIVEN["plugin"], *options)


def rpc(url: str, method: str, params: object = (), token: str = "") -> dict:
    """A call by another client than the page."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(url + "/jsonrpc", body, headers), timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


class Traffic:
    """Calls functions until it is closed, so that there is something to see."""

    def __init__(self, url: str) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(url,))
        self._thread.start()

    def _run(self, url: str) -> None:
        count = 0
        while not self._over.wait(0.01):
            count += 1
            rpc(url, "scale", [[[1, 2], [3, 4]], 2])
            rpc(url, "add", [1, 2])
            if count % 5 == 0:
                rpc(url, "fail", ["planned"])
            if count % 20 == 0:
                rpc(url, "sleep", [0.1])

    def __enter__(self) -> Traffic:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture(scope="session")
def daemon():
    with start("--model", f"vad={GIVEN['model']}", "--service-name", "example") as running:
        yield running


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=GIVEN["browser"], args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def new_page(browser: Browser):
    """Makes pages; `errors` of one are the errors that its console may have."""
    contexts, found = [], []

    def make(allowed: tuple[str, ...] = (), **options: object) -> Page:
        context = browser.new_context(viewport=WIDE, **options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()

        def note(text: str, place: object = "") -> None:
            if not any(part in text for part in allowed):
                found.append(f"{text} {place}")

        def note_message(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                note(message.text, message.location)

        page.on("console", note_message)
        page.on("pageerror", lambda error: note(f"{error}"))
        return page

    yield make
    for context in contexts:
        context.close()
    assert found == []


@pytest.fixture
def page(new_page, daemon):
    """The dashboard, connected."""
    opened = new_page()
    open_view(opened, daemon.url, "overview")
    return opened


@pytest.fixture
def run(page):
    """Runs the body of a function with a client of shared_tensor.js in the dashboard's page."""
    return lambda body, argument=None: page.evaluate("async (given) => {" + SETUP + body + "}", argument)


def open_view(page: Page, url: str, view: str) -> None:
    page.goto("about:blank")
    page.goto(f"{url}/#{view}")
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")


@pytest.fixture
def screenshot():
    """Keeps a picture for docs/dashboard.md, if the run was asked for them."""

    def take(page: Page, name: str) -> None:
        if GIVEN["screenshots"]:
            place = pathlib.Path(GIVEN["screenshots"]) / f"dashboard_{name}.jpg"
            page.screenshot(path=place, type="jpeg", quality=72)

    return take
