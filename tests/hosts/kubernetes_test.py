"""The manifests of deploy/kubernetes: they are valid, belong together, and what they start answers the probes.

The containers are processes in the image's root file system, with the manifest's command, user, files and ports."""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SCRIPT, SERVER, KEEPER, ENVIRONMENTS = (pathlib.Path(word) for word in sys.argv[1:5])
try:
    import kubernetes_validate  # noqa: F401  # by its command
    import yaml
except ImportError:  # runs again in an environment that has it
    sys.path.insert(0, str(REPOSITORY / "tests/support"))
    from environments import Environment

    python = Environment(ENVIRONMENTS, "kubernetes", ["kubernetes-validate", "PyYAML"]).python
    if pathlib.Path(sys.executable) == python:
        raise
    os.execv(python, [str(python), "-B", *sys.argv])

FOLDER = REPOSITORY / "deploy/kubernetes"
SECRET = "0123456789abcdef" * 4
SPACE = f"sk{os.getpid()}"
ADDRESS = "10.213.12.1"
LIMIT_S = 60
CONTAINERFILE = FOLDER.parent / "container/Containerfile"
ENTER = (
    'root=$1 user=$2 && shift 2 && mkdir -p "$root/proc" && /bin/mount -t proc proc "$root/proc" '
    '&& exec /usr/sbin/chroot --userspec="$user" --groups= "$root" "$@"'
)
ENVIRONMENT = next(line for line in CONTAINERFILE.read_text().splitlines() if line.startswith("ENV "))
IMAGE_ENVIRONMENT = dict(word.split("=", 1) for word in shlex.split(ENVIRONMENT)[1:])


def no_containers():
    if os.geteuid() != 0:
        return "it needs root, for namespaces"
    tried = subprocess.run(["ip", "netns", "add", SPACE], capture_output=True, text=True) if shutil.which("ip") else None
    if tried is None or tried.returncode != 0:
        return "it needs network namespaces"
    subprocess.run(["ip", "netns", "del", SPACE], check=False)
    return None


class Manifests(unittest.TestCase):
    """What kustomize makes of each folder; where there is no kustomize, the files as they are."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name) / "kubernetes"
        shutil.copytree(FOLDER, cls.folder)
        for overlay in cls.folder.glob("overlays/*"):
            (overlay / "tokens").write_text(f"app:{SECRET}\n")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def rendered(self, folder):
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            self.skipTest("it needs kubectl, which has kustomize")
        done = subprocess.run([kubectl, "kustomize", self.folder / folder], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return list(yaml.safe_load_all(done.stdout))

    def validate(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            command = [sys.executable, "-m", "kubernetes_validate", "--strict", "--quiet", file.name]
            done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_manifest_is_valid(self):
        files = [file for file in self.folder.rglob("*.yaml") if file.name != "kustomization.yaml"]
        self.assertGreaterEqual(len(files), 6)
        for file in files:
            with self.subTest(file=file.name):
                self.validate(file.read_text())

    def test_a_manifest_with_an_unknown_field_is_not(self):
        with self.assertRaises(AssertionError):
            self.validate((self.folder / "base/service.yaml").read_text().replace("clusterIP:", "clusterIp:"))

    def test_each_overlay_is_valid_as_a_whole(self):
        for folder in ("overlays/example", "overlays/gpu", "per-node"):
            with self.subTest(folder=folder):
                self.validate(yaml.safe_dump_all(self.rendered(folder)))

    def test_selectors_find_the_pods_and_no_others(self):
        by_kind = {one["kind"]: one for one in self.rendered("overlays/example")}
        labels = by_kind["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
        self.assertEqual(by_kind["StatefulSet"]["spec"]["selector"]["matchLabels"], labels)
        self.assertEqual(by_kind["Service"]["spec"]["selector"], labels)
        self.assertEqual(by_kind["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"], labels)
        self.assertEqual(by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"], labels)
        callers = by_kind["NetworkPolicy"]["spec"]["ingress"][0]["from"]
        self.assertEqual(callers, [{"podSelector": {"matchLabels": {"shared-tensor/client": "true"}}}])
        self.assertEqual(by_kind["StatefulSet"]["spec"]["serviceName"], by_kind["Service"]["metadata"]["name"])
        self.assertEqual(by_kind["StatefulSet"]["spec"]["replicas"], 2)
        volumes = by_kind["StatefulSet"]["spec"]["template"]["spec"]["volumes"]
        secrets = [volume["secret"]["secretName"] for volume in volumes if "secret" in volume]
        self.assertEqual(secrets, [by_kind["Secret"]["metadata"]["name"]])

    def test_a_server_with_a_gpu_asks_for_one(self):
        by_kind = {one["kind"]: one for one in self.rendered("overlays/gpu")}
        container = by_kind["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(container["resources"]["limits"], {"memory": "2Gi", "nvidia.com/gpu": 1})
        sockets = by_kind["StatefulSet"]["spec"]["template"]["spec"]["volumes"][0]
        self.assertEqual(sockets, {"name": "sockets", "hostPath": {"path": "/run/shared-tensor", "type": "DirectoryOrCreate"}})


class Pod:
    """Runs a container of a pod: a process with the image's files, and the user, volumes and address of the pod."""

    def __init__(self, folder, pod, container):
        self.root = folder / "root"
        subprocess.run([SCRIPT, self.root, SERVER, KEEPER], check=True)
        user = pod["securityContext"]["runAsUser"]
        for volume in pod["volumes"]:
            place = next(one["mountPath"] for one in container["volumeMounts"] if one["name"] == volume["name"])
            inside = self.root / place.lstrip("/")
            inside.mkdir(parents=True, exist_ok=True)
            if "secret" in volume:
                (inside / "tokens").write_text(f"app:{SECRET}\n")
                os.chown(inside / "tokens", 0, pod["securityContext"]["fsGroup"])
                (inside / "tokens").chmod(volume["secret"]["defaultMode"])
            elif "hostPath" in volume:  # as an init container leaves it
                os.chown(inside, user, user)
                inside.chmod(0o700)
            else:
                os.chown(inside, 0, pod["securityContext"].get("fsGroup", 0))
                inside.chmod(0o2777)
        for words in (
            ("netns", "add", SPACE),
            ("-n", SPACE, "link", "set", "lo", "up"),
            ("-n", SPACE, "addr", "add", f"{ADDRESS}/24", "dev", "lo"),
        ):
            subprocess.run(["ip", *words], check=True)
        self.process = subprocess.Popen(
            [shutil.which("ip"), "netns", "exec", SPACE, shutil.which("unshare"), "-m", "/bin/sh", "-c", ENTER, "sh"]
            + [self.root, f"{user}:{user}", *container["command"], *container["args"]],
            env=IMAGE_ENVIRONMENT,
        )

    def stop(self):
        self.process.terminate()
        status = self.process.wait(timeout=LIMIT_S)
        subprocess.run(["ip", "netns", "del", SPACE], check=True)
        return status


def ask(port, path, method="GET", body=None, headers=()):
    """As a program in the pod's network: the status of an answer, None without one."""
    words = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", method]
    for header in headers:
        words += ["-H", header]
    if body is not None:
        words += ["-d", body]
    words += [f"http://{ADDRESS}:{port}{path}"]
    done = subprocess.run(["ip", "netns", "exec", SPACE, *words], capture_output=True, text=True)
    return int(done.stdout) or None


class Containers(unittest.TestCase):
    def setUp(self):
        if reason := no_containers():
            self.skipTest(reason)
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.folder.chmod(0o755)

    def start(self, pod, container):
        self.addCleanup(subprocess.run, ["ip", "netns", "del", SPACE], stderr=subprocess.DEVNULL)
        made = Pod(self.folder, pod, container)
        self.addCleanup(made.process.kill)
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        limit = time.monotonic() + LIMIT_S
        probe = container["startupProbe"]["httpGet"]
        while ask(ports[probe["port"]], probe["path"]) != 200:
            self.assertLess(time.monotonic(), limit)
            self.assertIsNone(made.process.poll())
            time.sleep(0.1)
        for kind in ("livenessProbe", "readinessProbe"):
            if kind in container:
                probe = container[kind]["httpGet"]
                self.assertEqual(ask(ports[probe["port"]], probe["path"]), 200)
        return made, ports

    def test_the_stateful_set_serves_clients_with_a_token(self):
        template = yaml.safe_load((FOLDER / "base/statefulset.yaml").read_text())["spec"]["template"]["spec"]
        pod, ports = self.start(template, template["containers"][0])
        ping = '{"jsonrpc": "2.0", "id": 1, "method": "server.ping"}'
        json = "Content-Type: application/json"
        for token, status in ((SECRET, 200), ("0" * 64, 401)):
            headers = [json, f"Authorization: Bearer {token}"]
            self.assertEqual(ask(ports["rpc"], "/jsonrpc", "POST", ping, headers), status)
        self.assertEqual(ask(ports["operations"], "/metrics"), 200)
        for name in ("server.sock", "local.sock"):  # for other containers of the pod
            self.assertTrue((pod.root / "run/shared-tensor" / name).is_socket(), name)
        self.assertEqual(pod.stop(), 0)

    def test_the_server_of_a_node_and_of_a_pod_have_a_socket_alone(self):
        node = yaml.safe_load((FOLDER / "per-node/daemonset.yaml").read_text())["spec"]["template"]["spec"]
        pod = yaml.safe_load((FOLDER / "sidecar/pod.yaml").read_text())["spec"]
        self.assertEqual(pod["containers"][0]["env"][0]["value"], "unix:/run/shared-tensor/server.sock")
        for spec, container in ((node, node["containers"][0]), (pod, pod["initContainers"][0])):
            started, _ = self.start(spec, container)
            self.assertTrue((started.root / "run/shared-tensor/server.sock").is_socket())
            self.assertIsNone(ask(2537, "/healthz"))
            self.assertEqual(started.stop(), 0)
            shutil.rmtree(started.root)


if __name__ == "__main__":
    del sys.argv[1:5]
    unittest.main()
