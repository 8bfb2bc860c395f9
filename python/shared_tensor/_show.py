"""What notebooks and terminals are shown."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from typing import Any

from .records import TaskStatus


def table(title: str, rows: Iterable[tuple[str, Any]]) -> str:
    """A table of HTML with two columns."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for name, value in rows
    )
    return f"<b>{html.escape(title)}</b><table>{cells}</table>"


def _type(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " | ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(map(repr, schema["enum"]))
    return str(schema.get("x-object-type") or schema.get("$ref", "").rpartition("/")[2] or schema.get("type", "any"))


def signature(method: Mapping[str, Any]) -> str:
    """A method of rpc.discover as a line: add(a: number, b: number = 1.0) -> number."""

    def one(parameter: Mapping[str, Any]) -> str:
        schema = parameter.get("schema", {})
        default = f" = {schema['default']!r}" if "default" in schema else "" if parameter.get("required") else " = ..."
        return f"{parameter['name']}: {_type(schema)}{default}"

    result = _type(method.get("result", {}).get("schema", {}))
    return f"{method['name']}({', '.join(map(one, method['params']))}) -> {result}"


def _bar(**options: Any) -> Any:
    """A bar of tqdm; None where tqdm is not installed."""
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None
    return tqdm(**options)


class ProgressBar:
    """A bar of tqdm for a task. Without tqdm nothing is shown."""

    def __init__(self, name: str) -> None:
        self._fraction = 0.0
        self._bar = _bar(desc=name, total=1, bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}{postfix}")

    def show(self, status: TaskStatus) -> None:
        if self._bar is None:
            return
        fraction = 1.0 if status.state == "completed" else status.fraction or 0.0
        self._bar.update(max(0.0, fraction - self._fraction))
        self._fraction = max(self._fraction, fraction)
        self._bar.set_postfix_str(status.message)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


class TransferBar:
    """A bar of tqdm for the bytes of a transfer, to be called with the bytes that arrived and the size. Without tqdm
    nothing is shown."""

    def __init__(self, name: str) -> None:
        self._bar = _bar(desc=name, total=0, unit="B", unit_scale=True, unit_divisor=1024)

    def __call__(self, arrived: int, size: int) -> None:
        if self._bar is not None:
            self._bar.total = size
            self._bar.update(arrived - self._bar.n)

    def __enter__(self) -> TransferBar:
        return self

    def __exit__(self, *ended: object) -> None:
        if self._bar is not None:
            self._bar.close()
