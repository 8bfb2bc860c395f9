"""Lines of the logger "shared_tensor"."""

from __future__ import annotations

from typing import Any


def debug(text: str, *values: Any) -> None:
    import logging  # not at the top: a program that does not ask for these lines does not pay for the import

    logging.getLogger("shared_tensor").debug(text, *values)


def warning(text: str, *values: Any) -> None:
    import logging

    logging.getLogger("shared_tensor").warning(text, *values)
