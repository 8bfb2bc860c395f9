"""A server under shared-tensor-keeper that is killed or replaced at random points, while clients use it."""

import http.client
import json
import os
import pathlib
import random
import signal
import subprocess
import threading
import time
import unittest

from keeper import PATIENCE, PLACE, Keeper, eventually, main


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
            eventually(lambda: " 226 " in (self.keeper.folder / "access.log").read_text(), "a fetch of differences")
        finally:
            self.stopped.set()
            for one in threads:
                one.join()
        self.keeper.await_server()
        self.check_read()
        self.assertEqual(self.faults, [], self.keeper.log())
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
    main()
