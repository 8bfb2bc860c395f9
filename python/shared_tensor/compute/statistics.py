"""What a compute client counts."""

from __future__ import annotations

import threading
from typing import Any

from ..records import Receipt


class Statistics:
    """Counts of calls, and sums of their times. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = 0
        self._successful = 0
        self._total = 0.0
        self._compute = 0.0

    def count(self, receipt: Receipt | None) -> None:
        """Counts a call; None: it failed."""
        with self._lock:
            self._requests += 1
            if receipt is not None:
                self._successful += 1
                self._total += receipt.total
                self._compute += receipt.run or 0.0

    def report(self) -> dict[str, Any]:
        """Averages are over the successful calls. The network's time is the call's time without the function's."""
        with self._lock:
            requests, successful = self._requests, self._successful
            total_ms, compute_ms = self._total * 1000, self._compute * 1000
        count = max(successful, 1)
        return {
            "total_requests": requests,
            "successful_requests": successful,
            "failed_requests": requests - successful,
            "success_rate": successful / requests if requests else 0.0,
            "avg_network_time_ms": (total_ms - compute_ms) / count,
            "avg_compute_time_ms": compute_ms / count,
            "avg_total_time_ms": total_ms / count,
        }
