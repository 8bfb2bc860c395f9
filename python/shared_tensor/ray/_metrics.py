"""Shows the metrics of a server among Ray's."""

from __future__ import annotations

import ssl
import urllib.request

from ray.util.metrics import Gauge

from ._directory import Place


class Metrics:
    """Copies the counters and gauges of a server of this process to gauges of Ray, with the tag `server` beside their
    own labels. One thread at a time. Ray shows metrics only if it is installed as `ray[default]`; else this does
    nothing."""

    def __init__(self, place: Place, token: str, authorities: str, server: str) -> None:
        try:
            from prometheus_client.parser import text_string_to_metric_families
        except ImportError:
            self._parse = None
            return
        self._parse = text_string_to_metric_families
        self._request = urllib.request.Request(f"{place.url}/metrics", headers={"Authorization": f"Bearer {token}"})
        tls = ssl.create_default_context(cafile=authorities) if authorities else None
        # No proxy of the environment: it would get the token.
        self._open = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
        ).open
        self._server = server
        self._gauges: dict[str, Gauge] = {}
        self._shown: set[tuple[str, tuple[tuple[str, str], ...]]] = set()  # name and tags

    def show(self) -> None:
        """Blocks for a request to the server. Prints why it failed."""
        try:
            self._show()
        except Exception as error:
            print(f"shared_tensor.ray: no metrics: {error}", flush=True)

    def _show(self) -> None:
        if self._parse is None:
            return
        with self._open(self._request, timeout=5) as answer:
            text = answer.read().decode()
        shown = set()
        for family in self._parse(text):
            if family.type not in ("counter", "gauge"):
                continue
            for sample in family.samples:
                tags = {**sample.labels, "server": self._server}
                self._gauge(sample.name, tuple(tags)).set(sample.value, tags)
                shown.add((sample.name, tuple(tags.items())))
        for name, gone in self._shown - shown:  # Ray would go on to show the last value
            self._gauge(name, tuple(dict(gone))).set(0, dict(gone))
        self._shown = shown

    def _gauge(self, name: str, tags: tuple[str, ...]) -> Gauge:
        key = " ".join((name, *tags))
        if key not in self._gauges:
            self._gauges[key] = Gauge(name, tag_keys=tags)
        return self._gauges[key]
