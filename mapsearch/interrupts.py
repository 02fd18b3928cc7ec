"""Ctrl-C as a wish that long work looks for, not an exception that strikes anywhere and loses what was found.

Contents: Interrupts, requested, interruptible.

Signals belong to the whole process, and so does this module's state.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

ECHO_S = 1.0
"""A terminal and a wrapper may both deliver one Ctrl-C; a second one counts only after this time."""


class _State:
    depth = 0
    eager = 0
    """Blocks under way in which Ctrl-C raises at once."""
    at: float | None = None
    """When Ctrl-C came first."""
    before: Any = None


def requested() -> bool:
    """Whether the user wants the work to stop."""
    return _State.at is not None


class Interrupts:
    """Inside the block, Ctrl-C makes `requested()` true, and a second one raises KeyboardInterrupt.

    Blocks may be nested; the outermost one decides how long a wish is remembered. Outside the main thread, where
    signals cannot be caught, it does nothing.
    """

    seen = False
    """Whether Ctrl-C came before the block ended."""

    def __init__(self) -> None:
        self._mine = False

    def __enter__(self) -> Self:
        self._mine = threading.current_thread() is threading.main_thread()
        if self._mine:
            _State.depth += 1
            if _State.depth == 1:
                _State.at, _State.eager = None, 0
                _State.before = signal.signal(signal.SIGINT, _note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._mine:
            return
        self.seen = requested()
        _State.depth -= 1
        if _State.depth == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL if _State.before is None else _State.before)
            _State.at = None


@contextmanager
def interruptible() -> Iterator[None]:
    """A block without a half-done result to protect: Ctrl-C raises KeyboardInterrupt in it at once."""
    if requested():
        raise KeyboardInterrupt
    _State.eager += 1
    try:
        yield
    finally:
        _State.eager -= 1


def _note(number: int, frame: FrameType | None) -> None:
    again = _State.at is not None and time.monotonic() - _State.at > ECHO_S
    first = _State.at is None
    if first:
        _State.at = time.monotonic()
    if again or (first and _State.eager):
        raise KeyboardInterrupt
