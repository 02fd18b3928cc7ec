"""Remembering Ctrl-C while the search turns it into an answer.

Contents: Interrupts.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """Inside the block, Ctrl-C still raises KeyboardInterrupt, and `seen` says that it came."""

    def __init__(self) -> None:
        self.seen = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        raise KeyboardInterrupt
