"""Who gets the page and its data: files, Origin, tokens, the option, the port for operators."""

from __future__ import annotations

import gzip
import http.client
import http.server
import os
import re
import shutil
import subprocess
import threading

import pytest
from conftest import open_view, start
from playwright.sync_api import expect

SECRET = "a (very) secret/token"  # with characters that the name of a subprotocol cannot have
FILES = [
    "/",
    "/dashboard/app.js",
    "/dashboard/style.css",
    "/dashboard/uPlot.iife.min.js",
    "/dashboard/views/calls.js",
    "/shared_tensor.js",
    "/shared_tensor/tensor.js",
    "/shared_tensor.d.ts",
    "/dashboard/licences.txt",
]


def ask(daemon, path, method="GET", port=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port or daemon.port, timeout=60)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        answer.body = answer.read()
        return answer
    finally:
        connection.close()


@pytest.fixture
def guarded(tmp_path):
    """A daemon with tokens. A test names it before `new_page`: then its pages are closed before it ends."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"alice:{SECRET}:admin\nbob:bobs secret token:allow=add\n")
    os.chmod(tokens, 0o600)
    with start("--token-file", str(tokens)) as daemon:
        daemon.tokens = tokens
        yield daemon


def test_each_file_has_its_type_a_strict_policy_and_is_sent_once(daemon):
    types = {".js": "text/javascript", ".css": "text/css", ".ts": "text/plain", ".txt": "text/plain"}
    for path in FILES:
        answer = ask(daemon, path)
        assert answer.status == 200, path
        wanted = next((kind for end, kind in types.items() if path.endswith(end)), "text/html")
        assert answer.headers["Content-Type"].startswith(wanted)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        packed = ask(daemon, path, Accept_Encoding="gzip, zstd")
        if packed.headers["Content-Encoding"]:
            assert len(packed.body) < 30_000
            assert gzip.decompress(packed.body) == answer.body
        same = ask(daemon, path, If_None_Match=answer.headers["ETag"])
        assert same.status == 304 and same.body == b""
        head = ask(daemon, path, "HEAD")
        assert head.status == 200 and head.body == b"" and int(head.headers["Content-Length"]) == len(answer.body)
    assert ask(daemon, "/", "POST", Content_Type="application/json").status == 405
    assert ask(daemon, "/dashboard/nothing.js").status == 404


def test_the_page_loads_nothing_from_elsewhere(page, daemon, new_page):
    asked = []
    other = new_page()
    other.on("request", lambda request: asked.append(request.url))
    open_view(other, daemon.url, "overview")
    assert asked and all(url.startswith((daemon.url, "about:", "data:", "blob:")) for url in asked)


def test_only_the_page_s_own_origin_is_admitted(daemon):
    own = {"Host": f"127.0.0.1:{daemon.port}"}
    ping = "/healthz"
    for origin, status in (
        (f"http://127.0.0.1:{daemon.port}", 200),
        (f"https://127.0.0.1:{daemon.port}", 403),
        (f"http://localhost:{daemon.port}", 403),
        ("http://127.0.0.1:1", 403),
        ("null", 403),
        ("https://evil.example", 403),
    ):
        assert ask(daemon, ping, Origin=origin, **own).status == status, origin
    evil = f"evil.example:{daemon.port}"
    assert ask(daemon, ping, Origin=f"http://{evil}", Host=evil).status == 403  # a name that DNS bound to 127.0.0.1
    answer = ask(daemon, ping, Origin=f"http://127.0.0.1:{daemon.port}", **own)
    assert answer.headers["Access-Control-Allow-Origin"] is None


def test_a_page_of_another_origin_is_rejected_by_the_daemon(new_page, daemon):
    class Foreign(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            # With an icon of its own, since a request for /favicon.ico could meet the end of this server.
            self.wfile.write(b"<!doctype html><title>foreign</title><link rel='icon' href='data:,'>")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = new_page(allowed=("CORS", "ERR_FAILED", "WebSocket connection", "403", "frame-ancestors"))
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        tried = """async (url) => {
            const call = {method: "POST", headers: {"Content-Type": "application/json"},
                          body: '{"jsonrpc": "2.0", "id": 1, "method": "add", "params": [1, 2]}'};
            const fetched = await fetch(url + "/jsonrpc", call).then((r) => r.text(), (e) => e.name);
            const imported = await import(url + "/shared_tensor.js").then(() => "loaded", (e) => e.name);
            const socket = await new Promise((done) => {
                const one = new WebSocket(url.replace("http", "ws") + "/ws");
                one.onopen = () => done("open");
                one.onerror = () => done("rejected");
            });
            const framed = await new Promise((done) => {
                const frame = document.createElement("iframe");
                frame.onload = () => done(frame.contentDocument ? "readable" : "hidden");
                frame.src = url + "/";
                document.body.append(frame);
            });
            return [fetched, imported, socket, framed];
        }"""
        assert page.evaluate(tried, daemon.url) == ["TypeError", "TypeError", "rejected", "hidden"]
        server.shutdown()


def test_with_tokens_the_files_need_none_and_the_data_do(guarded):
    for path in FILES:
        assert ask(guarded, path).status == 200
    for path in "/openrpc.json", "/metrics", "/healthz", "/tensors/x":
        assert ask(guarded, path).status == 401, path


@pytest.mark.skipif(os.getuid() != 0, reason="only root can run a client as another user")
def test_another_user_gets_the_files_only_where_there_are_tokens_and_stays_untrusted(daemon, guarded):
    def fetch(url, path):
        command = ["curl", "-s", "-i", "--compressed", "--noproxy", "*", url + path]
        nobody = {"user": 65534, "group": 65534, "extra_groups": []}
        return subprocess.run(
            command, capture_output=True, check=True, cwd="/", env={"PATH": os.environ["PATH"]}, **nobody
        ).stdout

    assert b"403" in fetch(daemon.url, "/").splitlines()[0]
    for path in FILES:
        head, _, body = fetch(guarded.url, path).partition(b"\r\n\r\n")
        assert b"200" in head.splitlines()[0]
        assert b"connection: close" in head.lower()  # the next request of the client comes from a new connection
        assert body == ask(guarded, path).body
        assert "Connection" not in ask(guarded, path).headers


def test_login_with_a_token_a_wrong_one_reload_and_logout(guarded, new_page):
    page = new_page(allowed=("401", "WebSocket connection"))
    page.goto(guarded.url)
    dialog = page.get_by_role("dialog", name="Log in")
    expect(dialog).to_contain_text("This server wants a token.")
    page.get_by_label("Token").fill("not the right token")
    page.get_by_role("button", name="Log in").click()
    expect(dialog).to_contain_text("does not know this token")
    page.get_by_label("Token").fill(SECRET)
    page.get_by_label("Token").press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.locator("#connection")).to_have_text(re.compile("^live"))  # over the WebSocket
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    page.reload()
    expect(page.locator("#connection")).to_have_text(re.compile("^live"))
    other = page.context.new_page()
    other.goto(guarded.url)
    expect(other.get_by_role("dialog", name="Log in")).to_be_visible()  # a tab of its own has no token
    page.get_by_role("button", name="Log out").click()
    expect(dialog).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_a_token_that_may_do_little_sees_what_it_may(guarded, new_page):
    page = new_page(allowed=("403", "401", "WebSocket connection"))
    page.goto(f"{guarded.url}/#overview")
    page.get_by_label("Token").fill("bobs secret token")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#connection")).to_have_text(re.compile("^live"))
    open_view(page, guarded.url, "server")
    expect(page.get_by_text("Only admins may see the options.")).to_be_visible()
    expect(page.get_by_text("Only admins may see the log.")).to_be_visible()
    open_view(page, guarded.url, "functions/add")
    page.get_by_label("a number").fill("1")
    page.get_by_label("b number").fill("2")
    page.get_by_role("button", name="Call", exact=True).click()
    expect(page.locator(".result")).to_have_text("3")
    open_view(page, guarded.url, "functions/fail")
    page.get_by_label("message text").fill("x")
    page.get_by_role("button", name="Call", exact=True).click()
    expect(page.locator(".result")).to_contain_text("Error -32007")


def test_a_revoked_token_ends_the_session_of_the_page(guarded, new_page):
    page = new_page(allowed=("401", "WebSocket connection"))
    page.goto(guarded.url)
    page.get_by_label("Token").fill(SECRET)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#connection")).to_have_text(re.compile("^live"))
    guarded.tokens.write_text("other:another secret token\n")
    expect(page.get_by_role("dialog", name="Log in")).to_contain_text("does not know this token")


def test_the_option_turns_it_off_and_the_port_for_operators_never_has_it():
    with start("--no-dashboard", "--operations-listen", "127.0.0.1:0") as daemon:
        for path in FILES:
            assert ask(daemon, path).status == 404, path
        own = {"Host": f"127.0.0.1:{daemon.port}", "Origin": f"http://127.0.0.1:{daemon.port}"}
        assert ask(daemon, "/healthz", **own).status == 403
    with start("--dashboard=false") as daemon:
        assert ask(daemon, "/").status == 404
    with start("--operations-listen", "127.0.0.1:0") as daemon:
        from conftest import rpc

        operations = int(rpc(daemon.url, "server.info")["result"]["operations"].rsplit(":", 1)[1])
        for path in FILES:
            assert ask(daemon, path, port=operations).status == 404, path


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which makes the certificate, is not installed")
def test_the_page_is_live_over_tls(new_page, tmp_path):
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run([*make.split(), *names], check=True, capture_output=True)
    os.chmod(key, 0o600)
    with start("--tls-certificate", str(certificate), "--tls-key", str(key)) as daemon:
        page = new_page(ignore_https_errors=True)
        open_view(page, daemon.url, "server")
        assert daemon.url.startswith("https://")
        expect(page.locator("#connection")).to_have_text(re.compile("^live"))  # over the WebSocket
        page.goto("about:blank")
