"""What AsyncSharedTensorClient tells about a task."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Mapping
from typing import Any


class TaskStatus(enum.Enum):
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self not in (TaskStatus.PENDING, TaskStatus.RUNNING)


@dataclasses.dataclass(frozen=True)
class TaskInfo:
    """What a task of AsyncSharedTensorClient does. Times are in seconds since 1970."""

    task_id: str
    function_path: str
    """The function's name."""
    status: TaskStatus
    created_at: float
    completed_at: float | None = None
    """None while it runs."""
    error_message: str | None = None
    """Of a failed task: the type and the text of its error."""
    progress: dict[str, Any] | None = None
    """`fraction`, from 0 to 1, and `message`, if the function has reported them."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as values of JSON."""
        return {**dataclasses.asdict(self), "status": self.status.value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TaskInfo:
        """The reverse of to_dict(). Raises ValueError for an unknown status."""
        return cls(**{**data, "status": TaskStatus(data["status"])})


def info_of(task: Mapping[str, Any]) -> TaskInfo:
    """Makes the record of a task as the server describes it (docs/protocol.md, "Tasks")."""
    status = TaskStatus(task["state"])
    return TaskInfo(
        task_id=task["id"],
        function_path=task["method"],
        status=status,
        created_at=_seconds(task["created_at"]),
        completed_at=_seconds(task["updated_at"]) if status.ended else None,
        error_message=_message(task["error"]) if "error" in task else None,
        progress=task.get("progress"),
    )


def _seconds(text: str) -> float:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _message(error: Mapping[str, Any]) -> str:
    data = error.get("data") or {}
    if "type" in data:
        return f"{data['type']}: {data.get('message', '')}"
    return str(data.get("detail") or error["message"])


__all__ = ["TaskInfo", "TaskStatus"]
