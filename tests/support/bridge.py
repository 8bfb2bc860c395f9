"""Network namespaces on one bridge: they stand in for hosts. Needs root and iproute2."""

from __future__ import annotations

import subprocess


def ip(*words: object) -> None:
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True)


class Bridge:
    """Host i has the namespace spaces[i], the address PREFIX.(i + 1), the link links[i] in its namespace, and the other
    end of the link, ports[i], in the namespace `switch`. `name`: at most 8 characters, other for each program."""

    def __init__(self, name: str, count: int, prefix: str) -> None:
        self.spaces = [f"{name}-{i}" for i in range(count)]
        self.links = [f"{name}h{i}" for i in range(count)]
        self.ports = [f"{name}p{i}" for i in range(count)]
        self.switch = f"{name}-s"
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for i, (space, link, port) in enumerate(zip(self.spaces, self.links, self.ports, strict=True)):
            ip("netns", "add", space)
            ip("link", "add", link, "type", "veth", "peer", "name", port)
            ip("link", "set", link, "netns", space)
            ip("link", "set", port, "netns", self.switch)
            ip("-n", space, "addr", "add", f"{prefix}.{i + 1}/24", "dev", link)
            ip("-n", space, "link", "set", link, "up")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "route", "add", "default", "via", f"{prefix}.100")
            ip("-n", self.switch, "link", "set", port, "up", "master", "bridge")

    def remove(self) -> None:
        for space in (*self.spaces, self.switch):
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
