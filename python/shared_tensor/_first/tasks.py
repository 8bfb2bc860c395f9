"""Calls as tasks: submitted now, their results fetched later. AsyncSharedTensorClient and -Provider share this."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..async_task import TaskInfo, TaskStatus, info_of
from ..client import Client
from ..errors import DeadlineExceeded, UnknownOrExpired
from .client import function_name
from .log import debug, warning

Callback = Callable[[TaskInfo], None]
PAGE = 1000  # tasks in one answer of task.list


class TaskCalls:
    """A child class has the attributes `client`, `poll_interval` and `verbose_debug`."""

    poll_interval: float
    verbose_debug: bool

    @property
    def client(self) -> Client:
        """The Client that makes the calls."""
        raise NotImplementedError

    def submit_task(
        self,
        function_path: str,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Starts a call in the server and returns the id of its task. `function_path`: a name, also with a module in
        front ("package.module:name"). The function's own options hold, not `options`."""
        task = self.client.submit(function_name(function_path), *args, **(kwargs or {}))
        if self.verbose_debug:
            debug("task %s: %s, args=%r, kwargs=%r", task.id, function_path, args, kwargs)
        return task.id

    def get_task_status(self, task_id: str) -> TaskInfo:
        """What the server knows about the task now. Raises UnknownOrExpired."""
        return info_of(self.client.call("task.get", id=task_id))

    def get_task_result(self, task_id: str) -> Any:
        """Waits until the task has ended. Returns its result or raises its error."""
        return self.client.task(task_id).result()

    def wait_for_task(self, task_id: str, timeout: float | None = None, callback: Callback | None = None) -> Any:
        """As get_task_result(), but waits at most `timeout` seconds; then DeadlineExceeded, and the task goes on.
        `callback` is called now, each `poll_interval` seconds, and at the end."""
        end = None if timeout is None else time.monotonic() + timeout
        task = self.client.task(task_id)
        while True:
            info = self.get_task_status(task_id)
            if callback is not None:
                _report(callback, info)
            if info.status.ended:
                return task.result()
            left = self.poll_interval if end is None else min(self.poll_interval, end - time.monotonic())
            if left <= 0:
                raise DeadlineExceeded(f"task {task_id} has not ended within {timeout:g} s; it goes on in the server")
            task.wait(left)

    def execute_function_async(
        self,
        function_path: str,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        wait: bool = True,
        timeout: float | None = None,
        callback: Callback | None = None,
    ) -> Any:
        """Submits a task. Returns its result, or with wait=False its id."""
        task_id = self.submit_task(function_path, args, kwargs, options)
        return self.wait_for_task(task_id, timeout, callback) if wait else task_id

    def cancel_task(self, task_id: str) -> bool:
        """Cancels a task. Returns False if it had ended, or if the server does not know it."""
        try:
            if self.get_task_status(task_id).status.ended:
                return False
            return self.client.task(task_id).cancel().state == "cancelled"
        except UnknownOrExpired:
            return False

    def list_tasks(self, status: str | TaskStatus | None = None) -> dict[str, TaskInfo]:
        """The caller's tasks by id, the newest first; with `status` those in this state."""
        wanted = {} if status is None else {"state": TaskStatus(status).value}
        found: dict[str, TaskInfo] = {}
        while True:
            page = self.client.call("task.list", limit=PAGE, **wanted)
            found.update((task["id"], info_of(task)) for task in page["tasks"])
            if "next_cursor" not in page:
                return found
            wanted["cursor"] = page["next_cursor"]


def _report(callback: Callback, info: TaskInfo) -> None:
    """An exception of the callback does not end the wait."""
    try:
        callback(info)
    except Exception as error:
        warning("the callback for task %s raised %r", info.task_id, error)
