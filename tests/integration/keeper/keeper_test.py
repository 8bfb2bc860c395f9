"""What outlives the server's process under shared-tensor-keeper, and how the keeper starts it again."""

import argparse
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

PATIENCE = 60  # seconds, for events that have to come: the machine may be busy
PLACE = None
OUTCOME_UNKNOWN = -32011
KEYS = "Idempotency-Key"


def eventually(condition, what):
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not happen in time")
        time.sleep(0.01)
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Keeper:
    """A keeper and its server. The server has the same port in each of its lives."""

    def __init__(self, test, *options, keeper=(), command=None, listens=False):
        folder = tempfile.TemporaryDirectory()
        test.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.port = free_port()
        self.ledger = self.folder / "ledger"
        if listens:
            keeper = (*keeper, "--listen", f"127.0.0.1:{self.port}", "--listen", str(self.folder / "server.sock"))
        mine = ("SHARED_TENSOR_", "RANK", "LOCAL_RANK", "LISTEN_", "NOTIFY_", "FDSTORE", "WATCHDOG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
        options = [option.format(folder=self.folder) for option in options]
        server = [PLACE.daemon, "--load", PLACE.plugin, *options]
        if "--listen" not in keeper:
            server += ["--port", str(self.port)]
        with (self.folder / "log").open("w") as log:
            self.process = subprocess.Popen(
                [PLACE.keeper, *keeper, "--", *(command or server)],
                env=kept | {"LEDGER": str(self.ledger)},
                stderr=log,
            )
        test.addCleanup(self.end)

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def log(self):
        return (self.folder / "log").read_text()

    def pid(self):
        """Of the server; 0 while there is none."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def request(self, method, path, body=None, headers=None):
        """Once: like a client that does not repeat anything."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def call(self, method, params=None, **headers):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}})
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return json.loads(self.request("POST", "/jsonrpc", body, {"Content-Type": "application/json"} | headers)[2])

    def serves(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.request("GET", "/readyz")[0] == 200

    def await_server(self):
        eventually(self.serves, f"a server at port {self.port}: {self.log()}")
        return self

    def kill(self):
        """Kills the server, and waits for the next one."""
        before = self.pid()
        os.kill(before, signal.SIGKILL)
        eventually(lambda: self.pid() not in (0, before), "the next start")
        return self.await_server()

    def state(self):
        return self.call("server.info")["result"]["state"]

    def entries(self):
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def put(self, name, raw, **query):
        """A tensor of bytes as a safetensors file."""
        header = json.dumps({name: {"dtype": "U8", "shape": [len(raw)], "data_offsets": [0, len(raw)]}}).encode()
        header += b" " * (-len(header) % 8)
        path = f"/tensors/{name}.safetensors" + "".join(f"?{key}={value}" for key, value in query.items())
        status, _, body = self.request("PUT", path, len(header).to_bytes(8, "little") + header + raw)
        answer = json.loads(body)
        if status not in (200, 201):
            raise AssertionError(answer)
        return answer["version"]

    def get(self, name):
        """The tensor's bytes, version and tag; None if there is no such name."""
        status, headers, body = self.request("GET", f"/tensors/{name}.raw")
        return (body, int(headers["Shared-Tensor-Version"]), headers["ETag"]) if status == 200 else None


class NamedTensors(unittest.TestCase):
    def test_versions_tags_and_bytes_are_there_after_a_crash(self):
        keeper = Keeper(self).await_server()
        large, small = random.randbytes(3_000_000), b"\1\2\3"
        self.assertEqual(keeper.put("large", random.randbytes(3_000_000)), 1)
        self.assertEqual(keeper.put("large", large), 2)
        keeper.put("small", small)
        before = [keeper.get("large"), keeper.get("small")]
        self.assertEqual([one[0] for one in before], [large, small])
        for _ in range(3):
            keeper.kill()
            self.assertEqual([keeper.get("large"), keeper.get("small")], before)
            state = keeper.state()
            self.assertEqual(state["restored"], {"named_tensors": 2, "tasks": 0, "idempotency_keys": 0, "lost": 0})
            self.assertEqual(state["descriptors"], 2, "the records, and the large tensor")
        self.assertEqual(keeper.put("large", small), 3)

    def test_versions_go_on_behind_those_of_deleted_names(self):
        keeper = Keeper(self).await_server()
        for _ in range(3):
            keeper.put("gone", b"123")
        keeper.call("tensor.delete", {"name": "gone"})
        keeper.kill()
        self.assertIsNone(keeper.get("gone"))
        self.assertEqual(keeper.put("gone", b"123"), 4)

    def test_memory_of_replaced_and_deleted_versions_goes(self):
        keeper = Keeper(self).await_server()
        for _ in range(5):
            keeper.put("name", random.randbytes(200_000))
        self.assertEqual(keeper.state()["descriptors"], 2)
        keeper.call("tensor.delete", {"name": "name"})
        eventually(lambda: keeper.state()["descriptors"] == 1, "the end of the memory")

    def test_members_and_metadata_of_a_set_and_its_blocks_stay(self):
        keeper = Keeper(self).await_server()
        tensors = {
            name: {"$tensor": {"dtype": "float64", "shape": [1000], "data": [number] * 1000}}
            for number, name in enumerate(("a", "b", "c"))
        }
        put = {"name": "set", "tensors": tensors, "metadata": {"step": "7", "x": "y"}}
        self.assertEqual(keeper.call("tensor.put", put)["result"]["version"], 1)
        changed = {"name": "set", "base": 1, "tensors": {"b": tensors["a"]}}
        self.assertEqual(keeper.call("tensor.put", changed)["result"]["version"], 2)
        everything = {"name": "set", "form": "blocks"}

        def blocks():
            answer = keeper.call("tensor.get", everything)["result"]
            return [(one["id"], one["manifest"]) for one in answer["blocks"]], answer["metadata"]

        before = blocks()
        self.assertEqual(len(before[0]), 2)
        self.assertEqual(before[1], put["metadata"])
        member = keeper.request("GET", "/tensors/set/b.raw")[2]
        keeper.kill()
        self.assertEqual(blocks(), before)
        self.assertEqual(keeper.request("GET", "/tensors/set/b.raw")[2], member)

    def test_a_set_is_there_when_the_last_process_with_its_memory_has_ended(self):
        keeper = Keeper(self).await_server()
        large = random.randbytes(3_000_000)
        keeper.put("large", large)
        keeper.call("fork_for", {"seconds": 1})
        begin = time.monotonic()
        keeper.kill()
        self.assertEqual(keeper.get("large")[0], large)
        self.assertGreater(time.monotonic() - begin, 0.5, "nobody had its memory")

    def test_a_watcher_that_repeats_its_question_sees_the_next_version(self):
        keeper = Keeper(self).await_server()
        keeper.put("watched", b"1")
        keeper.kill()
        answers = []
        question = {"name": "watched", "after_version": 1}
        watcher = threading.Thread(target=lambda: answers.append(keeper.call("tensor.watch", question)))
        watcher.start()
        keeper.put("watched", b"2")
        watcher.join(PATIENCE)
        self.assertEqual(answers[0]["result"], {"name": "watched", "version": 2, "changed": True})

    def test_a_put_that_the_keeper_has_no_place_for_is_rejected(self):
        keeper = Keeper(self, keeper=("--descriptors", "2")).await_server()
        keeper.put("first", random.randbytes(100_000))
        with self.assertRaisesRegex(AssertionError, "raise --descriptors of shared-tensor-keeper"):
            keeper.put("second", random.randbytes(100_000))
        self.assertIsNone(keeper.get("second"))
        keeper.put("small", b"1")
        keeper.call("tensor.delete", {"name": "first"})
        keeper.put("second", random.randbytes(100_000))

    def test_a_put_that_the_records_have_no_room_for_is_rejected_and_nothing_changes(self):
        keeper = Keeper(self, "--max-state-bytes", "256K").await_server()
        body = b"a" * 30_000
        keeper.put("name", body)
        with self.assertRaisesRegex(AssertionError, "max-state-bytes"):
            for number in range(10):
                keeper.put(f"name-{number}", body)
        self.assertEqual(keeper.get("name")[0], body)
        keeper.kill()
        self.assertEqual(keeper.get("name")[0], body)


class Runs(unittest.TestCase):
    def test_a_call_that_ended_does_not_run_again(self):
        keeper = Keeper(self).await_server()
        first = keeper.call("enter", ["once"], Idempotency_Key="k")
        self.assertEqual(first["result"], "once")
        keeper.kill()
        self.assertEqual(keeper.call("enter", ["once"], Idempotency_Key="k"), first)
        self.assertEqual(keeper.call("enter", ["other"], Idempotency_Key="k")["error"]["code"], -32602)
        self.assertEqual(keeper.entries(), ["once"])

    def test_a_call_that_had_begun_is_not_run_again_unless_it_is_idempotent(self):
        keeper = Keeper(self).await_server()
        for function in ("enter", "enter_again"):
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": function, "params": [function, 600]})
            connection = http.client.HTTPConnection("127.0.0.1", keeper.port)
            self.addCleanup(connection.close)
            connection.request("POST", "/jsonrpc", body, {"Content-Type": "application/json", KEYS: "k"})
            eventually(lambda name=function: name in keeper.entries(), "the call")
        keeper.kill()
        repeated = keeper.call("enter", ["enter", 600], Idempotency_Key="k")
        self.assertEqual(repeated["error"]["code"], OUTCOME_UNKNOWN)
        self.assertEqual(keeper.call("enter", ["enter", 0], Idempotency_Key="k")["error"]["code"], -32602)
        keeper.kill()
        self.assertEqual(keeper.call("enter", ["enter", 600], Idempotency_Key="k"), repeated)
        answer = keeper.call("enter_again", ["enter_again", 0], Idempotency_Key="k")
        self.assertEqual(answer["result"], "enter_again")
        self.assertEqual(keeper.entries(), ["enter", "enter_again", "enter_again"])

    def test_finished_tasks_and_their_results_are_there(self):
        keeper = Keeper(self).await_server()
        ids = [keeper.call("task.submit", {"method": "enter", "params": [f"t{i}"]})["result"]["id"] for i in range(3)]
        for one in ids:
            keeper.call("task.wait", {"id": one})
        failed = keeper.call("task.submit", {"method": "refuse", "params": ["why"]})["result"]["id"]
        self.assertEqual(keeper.call("task.wait", {"id": failed})["result"]["state"], "failed")
        before = keeper.call("task.list")["result"]
        reason = keeper.call("task.result", {"id": failed})["error"]
        keeper.kill()
        self.assertEqual(keeper.call("task.list")["result"], before)
        self.assertEqual(keeper.call("task.result", {"id": ids[2]})["result"], "t2")
        self.assertEqual(keeper.call("task.result", {"id": failed})["error"], reason)

    def test_tensors_of_results_are_there(self):
        keeper = Keeper(self).await_server()
        counts = (10, 200_000)  # in the record, and in memory of its own
        ids = [keeper.call("task.submit", {"method": "count_up", "params": [n]})["result"]["id"] for n in counts]
        for one in ids:
            keeper.call("task.wait", {"id": one})
        keyed = keeper.call("count_up", [10], Idempotency_Key="k")["result"]
        keeper.kill()
        for one, count in zip(ids, counts, strict=True):
            tensor = keeper.call("task.result", {"id": one}, Shared_Tensor_Accept="base64")["result"]["$tensor"]
            self.assertEqual(tensor["shape"], [count])
            digest = hashlib.sha256(tensor["base64"].encode()).hexdigest()
            fresh = keeper.call("count_up", [count], Shared_Tensor_Accept="base64")["result"]["$tensor"]
            self.assertEqual(digest, hashlib.sha256(fresh["base64"].encode()).hexdigest())
        self.assertEqual(keeper.call("count_up", [10], Idempotency_Key="k")["result"], keyed)

    def test_a_task_that_had_begun_is_not_run_again(self):
        keeper = Keeper(self).await_server()
        submit = ("task.submit", {"method": "enter", "params": ["task", 600]})
        identity = keeper.call(*submit, Idempotency_Key="k")["result"]["id"]
        eventually(keeper.entries, "the task")
        keeper.kill()
        self.assertEqual(keeper.call("task.get", {"id": identity})["error"]["code"], -32005)
        self.assertEqual(keeper.call(*submit, Idempotency_Key="k")["error"]["code"], OUTCOME_UNKNOWN)
        self.assertEqual(keeper.entries(), ["task"])

    def test_tasks_and_keys_that_are_forgotten_leave_nothing(self):
        keeper = Keeper(self, "--idempotency-window", "200ms").await_server()
        submit = {"method": "count_up", "params": [200_000], "ttl_ms": 200}
        keeper.call("task.wait", {"id": keeper.call("task.submit", submit)["result"]["id"]})
        keeper.call("count_up", [200_000], Idempotency_Key="k")
        eventually(lambda: keeper.state()["descriptors"] == 1, "the end of the results")
        keeper.kill()
        self.assertEqual(keeper.state()["restored"]["tasks"], 0)
        self.assertEqual(keeper.state()["restored"]["idempotency_keys"], 0)


class Starts(unittest.TestCase):
    def test_a_command_that_cannot_start_ends_the_keeper(self):
        keeper = Keeper(self, "--no-such-option")
        self.assertEqual(keeper.process.wait(PATIENCE), 1)
        self.assertIn("no-such-option", keeper.log())
        keeper = Keeper(self, command=["/no/such/program"])
        self.assertEqual(keeper.process.wait(PATIENCE), 127)

    def test_the_keeper_ends_with_its_server(self):
        keeper = Keeper(self).await_server()
        os.kill(keeper.pid(), signal.SIGTERM)
        self.assertEqual(keeper.process.wait(PATIENCE), 0)
        keeper = Keeper(self).await_server()
        server = keeper.pid()
        keeper.process.terminate()
        self.assertEqual(keeper.process.wait(PATIENCE), 0)
        self.assertFalse(pathlib.Path(f"/proc/{server}").exists())

    def test_a_keeper_that_is_told_to_end_while_it_replaces_its_server_ends(self):
        keeper = Keeper(self).await_server()
        answered = []
        slow = threading.Thread(target=lambda: answered.append(keeper.call("enter", ["slow", 1])["result"]))
        slow.start()
        eventually(keeper.entries, "the call")
        keeper.process.send_signal(signal.SIGUSR2)
        keeper.process.terminate()
        self.assertEqual(keeper.process.wait(PATIENCE), 0)
        slow.join()
        self.assertEqual(answered, ["slow"])

    def test_bad_command_lines_are_rejected(self):
        for options, reason in (
            ([], "behind"),
            (["--descriptors", "0", "--", "true"], "from 1 to"),
            (["--descriptors", "x", "--", "true"], "x"),
            (["server"], "behind"),
        ):
            run = subprocess.run([PLACE.keeper, *options], capture_output=True, text=True, check=False)
            self.assertEqual(run.returncode, 2)
            self.assertIn(reason, run.stderr)

    def test_the_keeper_listens_for_its_server(self):
        keeper = Keeper(self, listens=True).await_server()
        path = keeper.folder / "server.sock"
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            self.assertIn(b" 200 ", client.recv(4096))
        second = Keeper(self, keeper=("--listen", f"127.0.0.1:{keeper.port}"))
        self.assertEqual(second.process.wait(PATIENCE), 2)
        self.assertIn("--listen 127.0.0.1", second.log())
        keeper.end()
        second = Keeper(self, keeper=("--listen", str(path), "--listen", f"127.0.0.1:{keeper.port}"))
        second.port = keeper.port
        second.await_server()

    def test_other_users_cannot_add_descriptors(self):
        if os.geteuid() != 0:
            self.skipTest("only root can act as another user")
        keeper = Keeper(self, keeper=("--descriptors", "3")).await_server()
        name = next(
            line.split()[-1]
            for line in pathlib.Path("/proc/net/unix").read_text().splitlines()
            if f"shared-tensor-keeper-{keeper.process.pid}-" in line
        )
        script = (
            "import os, socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM);"
            "s.connect('\\0' + sys.argv[1]);"
            "[socket.send_fds(s, [b'FDSTORE=1\\nFDNAME=kept-%d' % i], [0]) for i in range(100, 110)]"
        )
        subprocess.run(["/usr/bin/python3", "-c", script, name[1:]], user=65534, check=True)
        keeper.put("large", random.randbytes(100_000))
        keeper.kill()
        self.assertIsNotNone(keeper.get("large"))

    def test_a_server_goes_on_when_its_keeper_has_ended(self):
        keeper = Keeper(self).await_server()
        server = keeper.pid()
        keeper.process.kill()
        keeper.process.wait()
        self.addCleanup(os.kill, server, signal.SIGKILL)
        keeper.put("large", random.randbytes(100_000))
        self.assertIsNotNone(keeper.get("large"))
        self.assertFalse(keeper.state()["kept"])
        self.assertIn("has ended", keeper.log())


class Crashes(unittest.TestCase):
    """Kills the server at random points while clients publish, read, fetch what differs from an older version (and are
    killed as well), and run tasks."""

    BLOCK = 64 << 10
    TTL_S = 20

    def setUp(self):
        # Without a local channel `shared-tensor get` fetches as from another host.
        options = ("--older-versions", "2", "--local-socket", "none", "--access-log", "{folder}/access.log")
        self.keeper = Keeper(self, *options, listens=True).await_server()
        self.stopped = threading.Event()
        self.faults = []
        self.published = 0  # the newest version that a client was told of
        self.tasks = []  # that a client saw completed
        self.reads = self.fetches = self.tries_to_fetch = 0
        self.fetching = threading.Lock()  # a version that is replaced at once is fetched whole

    def content(self, version):
        """A set that tells its version everywhere: in a version each third block of "blocks" changes, one element of
        each block of "elements", and all of "small"."""
        number = version.to_bytes(8, "little")
        changed = [version - (version - block) % 3 for block in range(40)]
        members = {
            "blocks": b"".join(bytes([one % 251]) * self.BLOCK for one in changed),
            "elements": (bytes(self.BLOCK // 2) + number + bytes(self.BLOCK // 2 - 8)) * 24,
            "small": number,
        }
        header, data = {}, b""
        for name, raw in members.items():
            header[name] = {"dtype": "U8", "shape": [len(raw)], "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text + data

    def check_set(self, body, what, least):
        """A whole set of one version, which is returned."""
        data = body[8 + int.from_bytes(body[:8], "little") :]
        version = int.from_bytes(data[-8:], "little")
        if version < least:
            self.faults.append(f"{what}: version {version} after {least}")
        expected = self.content(version)
        if data != expected[8 + int.from_bytes(expected[:8], "little") :]:
            self.faults.append(f"{what}: version {version} is torn or mixed")
        return version

    def check_read(self):
        least = self.published
        status, headers, body = self.keeper.request("GET", "/tensors/set.safetensors")
        if status == 404 and least == 0:
            return
        version = int(headers["Shared-Tensor-Version"])
        if self.check_set(body, "get", least) != version:
            self.faults.append(f"get: the body has another version than {version}")
        self.reads += 1

    def fetch(self):
        """By the command line, from the version that the fetch before has left."""
        now, then = self.keeper.folder / "now.safetensors", self.keeper.folder / "then.safetensors"
        least = self.published
        command = [PLACE.tool, "get", "set", "--url", f"http://127.0.0.1:{self.keeper.port}", "--output", now]
        if then.exists():
            command += ["--previous", then]
        self.tries_to_fetch += 1
        with (
            self.fetching,
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process,
        ):
            if self.tries_to_fetch % 3 == 0:
                time.sleep(random.uniform(0.005, 0.03))
                process.kill()
            try:
                errors = process.communicate(timeout=PATIENCE)[1]
            except subprocess.TimeoutExpired:
                process.kill()
                errors = "it does not end"
        if process.returncode not in (0, 1, -signal.SIGKILL) or "expected" in errors or "does not end" in errors:
            self.faults.append(f"fetch: {process.returncode}: {errors}")
        for part in self.keeper.folder.glob("now.safetensors.part-*"):
            part.unlink()  # of one that was killed
        if now.exists():
            self.check_set(now.read_bytes(), "fetch", least)
            now.rename(then)
            self.fetches += 1
        elif process.returncode == 0:
            self.faults.append("fetch: there is no file")

    def publish(self):
        current = self.keeper.request("HEAD", "/tensors/set.safetensors")
        version = int(current[1]["Shared-Tensor-Version"]) if current[0] == 200 else 0
        with self.fetching:
            time.sleep(0.001)  # the fetch may begin
        path = f"/tensors/set.safetensors?if_version={version}"
        status, _, body = self.keeper.request("PUT", path, self.content(version + 1))
        if status not in (200, 201) or json.loads(body)["version"] != version + 1:
            self.faults.append(f"put of {version + 1}: {body}")
        self.published = max(self.published, version + 1)

    def run_task(self):
        count = 30_000 if len(self.tasks) % 10 == 0 else 3_000  # in memory of its own, and in the record
        submit = {"method": "count_up", "params": [count], "ttl_ms": self.TTL_S * 1000}
        identity = self.keeper.call("task.submit", submit)["result"]["id"]
        answer = self.keeper.call("task.wait", {"id": identity})
        if answer.get("result", {}).get("state") == "completed":
            self.tasks.append((time.monotonic(), identity, count))

    def monitor(self):
        """As monitors do. Meanwhile the kernel cannot take a killed server's mappings away."""
        pathlib.Path(f"/proc/{self.keeper.pid()}/smaps").read_bytes()
        time.sleep(0.001)

    def repeat(self, action):
        while not self.stopped.is_set():
            try:
                action()
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                if isinstance(error, KeyError) and "Shared-Tensor-Version" in str(error):
                    self.faults.append(repr(error))  # any other is a request that the kill cut off

    def has_done_more(self, known):
        now = (self.published, self.reads, self.fetches, len(self.tasks))
        return all(one > before for one, before in zip(now, known, strict=True))

    def test_nothing_is_torn_or_lost(self):
        actions = (self.publish, self.check_read, self.fetch, self.run_task, self.monitor, self.monitor)
        threads = [threading.Thread(target=self.repeat, args=(one,)) for one in actions]
        for one in threads:
            one.start()
        try:
            for _ in range(PLACE.kills):
                before, known = self.keeper.pid(), (self.published + 3, self.reads, self.fetches, len(self.tasks))
                eventually(lambda known=known: self.has_done_more(known), f"puts and fetches: {self.faults}")
                time.sleep(random.uniform(1.0, 1.2) if PLACE.kills > 10 else random.uniform(0, 0.05))
                os.kill(before, signal.SIGKILL)
                eventually(lambda before=before: self.keeper.pid() not in (0, before), "the next start")
        finally:
            self.stopped.set()
            for one in threads:
                one.join()
        self.keeper.await_server()
        self.check_read()
        self.assertEqual(self.faults, [], self.keeper.log())
        differences = (self.keeper.folder / "access.log").read_text().count(' 226 ')
        self.assertGreater(differences, 0, "all were fetched whole")
        living = [one for one in self.tasks if one[0] > time.monotonic() - self.TTL_S / 2]
        self.assertTrue(living)
        for _, identity, count in living[-500:]:
            result = self.keeper.call("task.result", {"id": identity}, Shared_Tensor_Accept="base64")["result"]
            self.assertEqual(result["$tensor"]["shape"], [count], identity)
        self.assertNotIn("is lost", self.keeper.log())


class Restarts(unittest.TestCase):
    def test_clients_lose_no_call_and_none_runs_twice_while_the_server_is_replaced(self):
        failed, answered, entries = self.restart(lambda keeper: keeper.process.send_signal(signal.SIGUSR2))
        self.assertEqual(failed, set())
        self.assertEqual(answered, entries)

    def test_no_call_is_lost_silently_or_runs_twice_while_the_server_is_killed(self):
        failed, answered, entries = self.restart(lambda keeper: os.kill(keeper.pid(), signal.SIGKILL))
        self.assertLessEqual(answered, entries)
        self.assertLessEqual(entries - answered, failed)
        self.assertLessEqual(len(failed), 3 * PLACE.kills, "of three calls at once")

    def restart(self, how):
        """Calls that failed, that were answered, and that ran, each once."""
        keeper = Keeper(self, listens=True).await_server()
        outputs = [(keeper.folder / name).open("w+") for name in ("answers", "errors")]
        for one in outputs:
            self.addCleanup(one.close)
        url = f"http://127.0.0.1:{keeper.port}"
        client = subprocess.Popen([PLACE.client, url], stdin=subprocess.PIPE, stdout=outputs[0], stderr=outputs[1])
        for _ in range(PLACE.kills):
            known = len(keeper.entries())
            eventually(lambda known=known: len(keeper.entries()) > known + 5, "calls")
            if PLACE.kills > 10:
                time.sleep(random.uniform(1.0, 1.2))  # a server that ran for a second starts again at once
            before = keeper.pid()
            how(keeper)
            eventually(lambda before=before: keeper.pid() not in (0, before), "the next start")
        client.communicate()
        answers, errors = [(keeper.folder / name).read_text().splitlines() for name in ("answers", "errors")]
        for line in errors:
            self.assertIn("Outcome unknown", line)
        entries = keeper.entries()
        self.assertEqual(len(entries), len(set(entries)), "a call ran twice")
        return {line.split(":")[0] for line in errors}, set(answers), set(entries)


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    for option in ("--keeper", "--daemon", "--plugin", "--client", "--tool"):
        options.add_argument(option, required=True)
    options.add_argument("--kills", type=int, default=6)
    PLACE, rest = options.parse_known_args()
    unittest.main(argv=[__file__, *rest])
