"""What outlives the server's process under shared-tensor-keeper, and how the keeper starts it again."""

import hashlib
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from keeper import PATIENCE, PLACE, Keeper, eventually, main
from ports import free_port

OUTCOME_UNKNOWN = -32011
KEYS = "Idempotency-Key"


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

    def test_a_version_that_comes_back_after_its_name_was_deleted_has_another_tag(self):
        keeper = Keeper(self).await_server()
        tags = set()
        for content in (b"1", b"2"):
            self.assertEqual(keeper.put("name", content, version=10), 10)
            tags.add(keeper.get("name")[2])
            keeper.call("tensor.delete", {"name": "name"})
        self.assertEqual(len(tags), 2)

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
        begin = time.monotonic()
        keeper.call("fork_for", {"seconds": 1})
        keeper.kill()
        self.assertEqual(keeper.get("large")[0], large)
        self.assertGreater(time.monotonic() - begin, 1, "nobody had its memory")

    def test_a_set_whose_memory_another_process_keeps_is_lost_and_the_server_starts(self):
        keeper = Keeper(self).await_server()
        keeper.put("large", random.randbytes(3_000_000))
        keeper.put("small", b"123")
        keeper.call("fork_for", {"seconds": 20})
        keeper.kill()
        self.assertEqual(keeper.state()["restored"]["lost"], 1)
        self.assertIsNone(keeper.get("large"))
        self.assertEqual(keeper.get("small")[0], b"123")
        keeper.await_log("still has its memory")

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
        with self.assertRaisesRegex(AssertionError, "max-state-bytes"):
            for number in range(3000):  # until no page is left
                keeper.put(f"small-{number}", b"1")
        while tensors := keeper.call("tensor.list")["result"]["tensors"]:
            for one in tensors:
                self.assertIn("result", keeper.call("tensor.delete", {"name": one["name"]}))
        keeper.put("again", body)

    def test_descriptors_that_a_keeper_that_stands_still_was_not_told_of_count_as_used(self):
        keeper = Keeper(self, keeper=("--descriptors", "16")).await_server()
        for number in range(15):
            keeper.put(f"a{number}", random.randbytes(70_000))
        keeper.process.send_signal(signal.SIGSTOP)
        threads = [
            threading.Thread(target=keeper.call, args=("tensor.delete", {"name": f"a{number}"})) for number in range(15)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        keeper.process.send_signal(signal.SIGCONT)
        kept = []
        with self.assertRaisesRegex(AssertionError, "raise --descriptors"):
            for number in range(16):
                keeper.put(f"b{number}", random.randbytes(70_000))
                kept.append(f"b{number}")
        keeper.kill()
        self.assertTrue(kept)
        self.assertTrue(all(keeper.get(name) for name in kept))


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

    def test_a_run_that_began_longer_ago_than_keys_are_known_is_not_run_again(self):
        keeper = Keeper(self, "--idempotency-window", "5s").await_server()
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "enter", "params": ["cut", 600]})
        connection = http.client.HTTPConnection("127.0.0.1", keeper.port)
        self.addCleanup(connection.close)
        connection.request("POST", "/jsonrpc", body, {"Content-Type": "application/json", KEYS: "k"})
        eventually(keeper.entries, "the call")
        ends = ("task.submit", {"method": "enter", "params": ["ends", 5.5]})
        identity = keeper.call(*ends, Idempotency_Key="k")["result"]["id"]
        keeper.call("task.wait", {"id": identity})
        keeper.kill()
        self.assertEqual(keeper.call("enter", ["cut", 600], Idempotency_Key="k")["error"]["code"], OUTCOME_UNKNOWN)
        self.assertEqual(keeper.call(*ends, Idempotency_Key="k")["result"]["id"], identity)
        self.assertEqual(keeper.entries(), ["cut", "ends"])

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

    def test_calls_that_a_replaced_server_cut_off_are_not_kept_as_its_errors(self):
        keeper = Keeper(self, "--workers", "1", "--drain-time", "100ms").await_server()
        sent = []
        for name, seconds in (("begun", 5), ("waiting", 0)):
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "enter", "params": [name, seconds]})
            connection = http.client.HTTPConnection("127.0.0.1", keeper.port)
            self.addCleanup(connection.close)
            connection.request("POST", "/jsonrpc", body, {"Content-Type": "application/json", KEYS: name})
            sent.append(connection)
            eventually(lambda: len(keeper.call("server.calls")["result"]["calls"]) == len(sent), f"the call {name}")
        eventually(keeper.entries, "the first call")
        task = ("task.submit", {"method": "enter", "params": ["task"]})
        identity = keeper.call(*task, Idempotency_Key="t")["result"]["id"]
        before = keeper.pid()
        keeper.process.send_signal(signal.SIGUSR2)
        answers = [json.load(connection.getresponse())["error"] for connection in sent]
        self.assertEqual([answer["code"] for answer in answers], [-32009, -32009])
        self.assertEqual([answer["data"].get("may_have_run") for answer in answers], [True, None])
        eventually(lambda: keeper.pid() not in (0, before), "the next start")
        keeper.await_server()
        begun = keeper.call("enter", ["begun", 5], Idempotency_Key="begun")
        self.assertEqual(begun["error"]["code"], OUTCOME_UNKNOWN)
        self.assertEqual(keeper.call("enter", ["waiting", 0], Idempotency_Key="waiting")["result"], "waiting")
        self.assertEqual(keeper.call("task.get", {"id": identity})["error"]["code"], -32005)
        again = keeper.call(*task, Idempotency_Key="t")["result"]["id"]
        self.assertEqual(keeper.call("task.wait", {"id": again})["result"]["state"], "completed")

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
    def test_a_keeper_that_gets_no_process_for_its_server_tries_again(self):
        if PLACE.failing_fork is None:
            self.skipTest("this build is made for a sanitizer")
        keeper = Keeper(self, preload=PLACE.failing_fork).await_server()
        keeper.put("x", b"kept")
        keeper.kill()
        keeper.await_log("could not be started (fork: Resource temporarily unavailable)")
        self.assertEqual(keeper.get("x")[0], b"kept")

    def keeper_of_script(self, script):
        """The script tells its starts apart by the file {mark}."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        port = free_port()
        script = script.format(mark=f"{folder.name}/mark", server=f"{PLACE.daemon} --port {port}")
        keeper = Keeper(self, command=["/bin/sh", "-c", script])
        keeper.port = port
        return keeper.await_server()

    def test_the_keeper_waits_longer_between_starts_that_all_fail(self):
        keeper = self.keeper_of_script("[ -e {mark} ] && sleep 1.2 && exit 1; touch {mark}; exec {server}")
        os.kill(keeper.pid(), signal.SIGHUP)
        keeper.await_log("read the options again")  # which it does only after it has told the keeper that it serves
        os.kill(keeper.pid(), signal.SIGKILL)
        eventually(lambda: keeper.log().count("exited with 1") == 3, "the third failure")
        delays = [int(delay) for delay in re.findall(r"exited with 1; it starts again in (\d+) ms", keeper.log())]
        self.assertEqual(delays[:3], [delays[0], 2 * delays[0], 4 * delays[0]])

    def test_a_command_that_is_killed_before_it_serves_starts_again(self):
        keeper = self.keeper_of_script("[ -e {mark} ] || {{ touch {mark}; kill -KILL $$; }}; exec {server}")
        keeper.await_log("was killed by signal Killed")

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
            (["--listen", "127.0.0.1:99999", "--", "true"], "at most 65535"),
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

    def notify_socket(self, keeper):
        sockets = pathlib.Path("/proc/net/unix").read_text().splitlines()
        return next(line.split()[-1] for line in sockets if line.endswith("/notify.sock") and keeper.folder.name in line)

    def test_other_users_cannot_send_to_the_keeper(self):
        if os.geteuid() != 0:
            self.skipTest("only root can act as another user")
        keeper = Keeper(self).await_server()
        script = "import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).connect(sys.argv[1])"
        command = ["/usr/bin/python3", "-c", script, self.notify_socket(keeper)]
        keeper.folder.chmod(0o755)
        subprocess.run(command, check=True)
        done = subprocess.run(command, user=65534, stderr=subprocess.PIPE, text=True)
        self.assertIn("PermissionError", done.stderr)

    def test_the_folder_of_the_keepers_socket_is_removed_at_its_end(self):
        keeper = Keeper(self).await_server()
        folder = pathlib.Path(self.notify_socket(keeper)).parent
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        keeper.end()
        self.assertFalse(folder.exists())

    def test_a_keeper_without_a_folder_for_its_socket_says_so(self):
        with tempfile.TemporaryDirectory(prefix="x" * 100) as long:
            for folder in "/proc/none", long:
                environment = os.environ | {"TMPDIR": folder}
                done = subprocess.run(
                    [PLACE.keeper, "--", "true"], env=environment, stderr=subprocess.PIPE, text=True
                )
                self.assertEqual(done.returncode, 2)
                self.assertIn("TMPDIR", done.stderr)
                self.assertEqual(os.listdir(long), [])

    def test_a_server_goes_on_when_its_keeper_has_ended(self):
        keeper = Keeper(self).await_server()
        server = keeper.pid()
        keeper.process.kill()
        keeper.process.wait()
        self.addCleanup(os.kill, server, signal.SIGKILL)
        keeper.put("large", random.randbytes(100_000))
        self.assertIsNotNone(keeper.get("large"))
        self.assertFalse(keeper.state()["kept"])
        keeper.await_log("has ended")


if __name__ == "__main__":
    main()
