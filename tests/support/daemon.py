"""The daemon of a build as a child process, for tests in Python."""

import os
import pathlib
import subprocess
import tempfile
import time

PATIENCE = 60  # seconds, for what has to come: the machine may be busy


class Daemon:
    """A daemon on a port that the kernel chooses. It is ready when the constructor returns; if it ended before, the
    constructor throws NotStarted with its log."""

    class NotStarted(Exception):
        pass

    def __init__(self, program, *options, env=None, **process):
        self.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.folder.name)
        os.chmod(folder, 0o755)
        place = folder / "of_the_daemon"
        place.mkdir()
        if "user" in process:
            os.chown(place, process["user"], process["group"])
        self.log_path = folder / "log"
        env = env or {k: v for k, v in os.environ.items() if not k.startswith(("SHARED_TENSOR_", "RANK", "LOCAL_RANK"))}
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen([program, "--port", "0", "--ready-file", place / "ready", *options],
                                            stderr=log, env=env, **process)
        try:
            end = time.monotonic() + PATIENCE
            while not (place / "ready").exists():
                if self.process.poll() is not None:
                    raise Daemon.NotStarted(self.log())
                assert time.monotonic() < end, "the daemon is not ready in time"
                time.sleep(0.02)
            self.url = (place / "ready").read_text().strip()
            self.port = int(self.url.rsplit(":", 1)[1])
        except BaseException:
            self.close()
            raise

    def log(self):
        return self.log_path.read_text()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
