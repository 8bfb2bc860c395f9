"""A program on a terminal of its own, for tests in Python."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

PATIENCE = 60  # seconds, for what has to come: the machine may be busy


class Terminal:
    """Runs a program whose standard input, output and error are a terminal. `text` is what it has written so far."""

    def __init__(self, command, env, rows=30, columns=120):
        self.text = ""
        self.code = None  # once it has ended; negative: the signal that ended it
        self._master, self._slave = pty.openpty()
        self.resize(rows, columns)
        self.settings = termios.tcgetattr(self._slave)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.login_tty(self._slave) if hasattr(os, "login_tty") else self._take_terminal()
                os.execve(command[0], [str(word) for word in command], env)
            finally:
                os._exit(127)

    def _take_terminal(self):
        os.setsid()
        fcntl.ioctl(self._slave, termios.TIOCSCTTY, 0)
        for descriptor in (0, 1, 2):
            os.dup2(self._slave, descriptor)

    def resize(self, rows, columns):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, keys):
        os.write(self._master, keys.encode())

    def read(self, seconds):
        """Reads what comes within this time, or sooner returns what there is."""
        if select.select([self._master], [], [], seconds)[0]:
            self.text += os.read(self._master, 65536).decode(errors="replace")

    def wait_for(self, pattern, after=0):
        """Waits until the pattern is in the text from `after` on. Returns the match."""
        end = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.text[after:])):
            if time.monotonic() > end:
                raise AssertionError(f"{pattern!r} did not come: ... {self.text[after:][-500:]!r}")
            self.read(0.1)
        return found

    def wait(self):
        """Waits for the end of the program. Returns its exit code, or minus the signal that ended it."""
        end = time.monotonic() + PATIENCE
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                raise AssertionError(f"the program does not end: ... {self.text[-500:]!r}")
            self.read(0.05)
        self._read_the_rest()
        return self.code

    def _read_the_rest(self):
        """What the program wrote before its end: all that stands before a text that is written now."""
        mark = "\x1b[end of the program]"
        while select.select([self._master], [], [], 0)[0]:  # or the write could find the terminal full
            self.read(0)
        os.write(self._slave, mark.encode())
        self.wait_for(re.escape(mark) + r"\Z")
        self.text = self.text.removesuffix(mark)

    def settings_now(self):
        return termios.tcgetattr(self._slave)

    def close(self):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.code = -signal.SIGKILL
        os.close(self._master)
        os.close(self._slave)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
