#!/usr/bin/env python3
"""The metrics of the daemon as Prometheus sees them, and what is made for them: docs/metrics.md, deploy/.

    prometheus_test.py --daemon PROGRAM --plugin PLUGIN

The tests that run Prometheus and promtool are skipped where they are not installed (scripts/install_packages --checkers).
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/support"))
from daemon import PATIENCE, Daemon
from ports import free_port

DASHBOARD = ROOT / "deploy/grafana/shared_tensor.json"
RULES = ROOT / "deploy/prometheus/rules.yml"
NOBODY = 65534
HAS_PROMETHEUS = bool(shutil.which("prometheus") and shutil.which("promtool"))
NO_PROMETHEUS = "prometheus is not installed (scripts/install_packages --checkers)"


def get(url, **headers):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=PATIENCE) as answer:
        return answer.read().decode()


def call(url, method, *params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    request = urllib.request.Request(url + "/jsonrpc", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.loads(answer.read())


def expressions():
    """The queries of the dashboard with its variables replaced, and those of the rules."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$function", ".*")
    rules = RULES.read_text()
    for found in re.finditer(r"expr: (?:>-\n((?: {10}.*\n)+)|(.*)\n)", rules):
        yield " ".join((found.group(1) or found.group(2)).split())


class Metrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(PLACE.daemon, "--load", PLACE.plugin, "--operations-listen", "127.0.0.1:0")
        cls.addClassCleanup(cls.daemon.close)
        for _ in range(3):
            call(cls.daemon.url, "add", 1, 2)
        call(cls.daemon.url, "fail", "on purpose")
        cls.operations = call(cls.daemon.url, "server.info")["result"]["operations"]
        cls.page = get(cls.operations + "/metrics")
        cls.types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", cls.page, re.MULTILINE))

    def values_of(self, label):
        return set(re.findall(rf'\b{label}="([^"]*)"', self.page))

    def test_the_page_of_the_documentation_lists_exactly_these_metrics(self):
        rows = re.findall(r"^\| `(shared_tensor_\w+)` \| (\w+) \|(.*?)\|", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
        self.assertEqual({name: kind for name, kind, _ in rows}, self.types)
        labels = {name: set(re.findall(r"`(\w+)`", text)) for name, _, text in rows}
        for line in self.page.splitlines():
            name, _, rest = line.partition("{")
            if not rest or line.startswith("#"):
                continue
            name = name if name in self.types else re.sub(r"_(bucket|sum|count)$", "", name)
            self.assertLessEqual(set(re.findall(r'(\w+)="', rest)) - {"le"}, labels[name], line)

    def test_the_documentation_lists_the_outcomes_and_reasons(self):
        text = (ROOT / "docs/metrics.md").read_text()
        for value in self.values_of("outcome") | self.values_of("reason"):
            self.assertIn(f"`{value}`", text)

    def test_dashboard_and_rules_use_what_there_is(self):
        count = 0
        for expression in expressions():
            for name in re.findall(r"\bshared_tensor_\w+", expression):
                base = re.sub(r"_(bucket|sum|count)$", "", name)
                self.assertTrue(name in self.types or self.types.get(base) == "histogram", f"{name} in {expression}")
                count += 1
            for label, values in re.findall(r'\b(outcome|reason|state)[=!]~?"([^"]+)"', expression):
                self.assertLessEqual(set(values.split("|")), self.values_of(label), expression)
        self.assertGreater(count, 30)

    @unittest.skipUnless(HAS_PROMETHEUS, NO_PROMETHEUS)
    def test_promtool_accepts_the_page(self):
        done = subprocess.run(["promtool", "check", "metrics"], input=self.page, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    @unittest.skipUnless(HAS_PROMETHEUS, NO_PROMETHEUS)
    def test_promtool_accepts_rules_and_configuration_and_the_rules_fire(self):
        for words in (["check", "rules", RULES], ["test", "rules", RULES.with_name("rules_test.yml")],
                      ["check", "config", RULES.with_name("prometheus.yml")]):
            done = subprocess.run(["promtool", *words], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipUnless(HAS_PROMETHEUS, NO_PROMETHEUS)
    @unittest.skipIf(os.geteuid() != 0, "only root can become another user")
    def test_a_prometheus_of_another_user_scrapes_the_daemon(self):
        with Prometheus(self.operations) as prometheus:
            query = 'shared_tensor_calls_total{function="add",outcome="ok"}'
            self.assertEqual(prometheus.await_value(query), "3")
            self.assertEqual(prometheus.await_value('up{job="shared_tensor"}'), "1")
            self.assertEqual(prometheus.await_value('shared_tensor_call_seconds_count{function="fail"}'), "1")
            for expression in expressions():
                self.assertEqual(prometheus.ask("query", query=expression)["status"], "success", expression)
            rules = prometheus.ask("rules")["data"]["groups"][0]["rules"]
            self.assertTrue(rules)
            self.assertEqual([rule["name"] for rule in rules if rule["health"] == "err"], [])
        # The same user gets nothing of the main port.
        done = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", self.daemon.url + "/metrics"], user=NOBODY,
                              group=NOBODY, extra_groups=[], capture_output=True, text=True)
        self.assertEqual(done.stdout, "403")


class Prometheus:
    """Debian's Prometheus as the user nobody, scraping `target` every second."""

    def __init__(self, target):
        self.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.folder.name)
        os.chmod(folder, 0o755)
        configuration = RULES.with_name("prometheus.yml").read_text().replace("127.0.0.1:9464", target.removeprefix("http://"))
        (folder / "prometheus.yml").write_text("global: {scrape_interval: 1s, evaluation_interval: 1s}\n" + configuration)
        shutil.copy(RULES, folder)
        (folder / "data").mkdir()
        os.chown(folder / "data", NOBODY, NOBODY)
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             "--web.listen-address=" + self.url.removeprefix("http://")],
            stdout=self.log, stderr=self.log, user=NOBODY, group=NOBODY, extra_groups=[])

    def __enter__(self):
        try:
            self.eventually(lambda: get(self.url + "/-/ready"), "Prometheus is not ready")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()
        self.folder.cleanup()

    def ask(self, what, **parameters):
        try:
            return json.loads(get(f"{self.url}/api/v1/{what}?" + urllib.parse.urlencode(parameters)))
        except urllib.error.HTTPError as error:
            return json.loads(error.read())

    def await_value(self, query):
        result = self.eventually(lambda: self.ask("query", query=query)["data"]["result"], f"no value of {query}")
        return result[0]["value"][1]

    def eventually(self, ask, missing):
        """What `ask` returns once it is true. Until Prometheus is ready, it answers with errors or not at all."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if result := ask():
                    return result
            except OSError:
                pass
            time.sleep(0.2)
        self.log.seek(0)
        raise AssertionError(f"{missing} in time; its log:\n{self.log.read()}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("daemon", "plugin"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    PLACE = parser.parse_args()
    unittest.main(argv=["prometheus_test"])
