"""Items on this machine: in this process, or on worker processes that may die without taking the sweep along.

Contents: Outcome, Runner, InProcess, Processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

import mapsearch
from mapsearch.errors import Stopped
from mapsearch.interrupts import requested
from mapsearch.sweeps.record import SweepItem, failed
from mapsearch.sweeps.work import Task, solved

ATTEMPTS = 2
"""Workers that may die on one item before it has failed: the first death may be a neighbour's doing."""
TICK_S = 0.2
"""How often a runner that waits looks for Ctrl-C."""

_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from mapsearch.sweeps.worker import main; main()"
"""A worker finds the mapsearch of this process, however it was found here, and nothing that lies in the folder."""

Outcome = SweepItem


class Runner(Protocol):
    """Who runs the items."""

    def __enter__(self) -> Self:
        """Start the workers."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop them at once."""

    def run(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        """Records as they come, in any order; after Ctrl-C no task is begun, and those under way are waited for."""


class InProcess:
    """One item after the other, here; after Ctrl-C the item under way is given up."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def run(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        """Records in the order of the tasks."""
        for task in tasks:
            line = solved(task.to_text())
            if line is not None:
                yield SweepItem.model_validate_json(line)
            if requested():
                return


@dataclass
class _Worker:
    """One worker process, the task it has, and what it has written of the record."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    task: Task | None = None
    since: float = 0.0
    heard: bytes = b""

    @property
    def pipe(self) -> int:
        """The descriptor of its answers."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def give(self, task: Task) -> None:
        """Send a task; a worker that has just died is noticed when its answers end."""
        self.task, self.since = task, time.monotonic()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(task.to_text().encode() + b"\n")
            self.process.stdin.flush()

    def overdue(self) -> bool:
        """Whether it is stuck in its task."""
        limit = None if self.task is None else self.task.deadline_s
        return limit is not None and time.monotonic() - self.since > limit

    def last_words(self) -> str:
        """The last line that it wrote to stderr."""
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - 2000))
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    def end(self) -> None:
        """Kill it and let its files go."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()


@dataclass
class Processes:
    """Worker processes, one item each at a time; an item whose worker dies is tried once more on a new one."""

    count: int
    _workers: list[_Worker] = field(default_factory=list)
    _again: list[Task] = field(default_factory=list)
    _deaths: dict[str, int] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that live."""
        return [worker.process.pid for worker in self._workers]

    def run(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        """Records as they come."""
        with selectors.DefaultSelector() as ears:
            while True:
                self._feed(tasks, ears)
                if not any(worker.task for worker in self._workers):
                    return
                for key, _ in ears.select(TICK_S):
                    yield from self._hear(key.data, ears)
                for worker in [worker for worker in self._workers if worker.overdue()]:
                    yield from self._stuck(worker, ears)

    def _feed(self, tasks: Iterator[Task], ears: selectors.BaseSelector) -> None:
        """A task for every idle worker, and a worker more while there is room."""
        while not requested():
            idle = next((worker for worker in self._workers if worker.task is None), None)
            if idle is None and len(self._workers) >= self.count:
                return
            task = self._again.pop() if self._again else next(tasks, None)
            if task is None:
                return
            (idle or self._hire(ears)).give(task)

    def _hire(self, ears: selectors.BaseSelector) -> _Worker:
        errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the worker
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(Path(mapsearch.__file__).parents[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C of the terminal goes to the sweep alone, which lets items end
        )
        worker = _Worker(process, errors)
        self._workers.append(worker)
        ears.register(worker.pipe, selectors.EVENT_READ, worker)
        return worker

    def _hear(self, worker: _Worker, ears: selectors.BaseSelector) -> Iterator[Outcome]:
        heard = os.read(worker.pipe, 1 << 20)
        if not heard:
            yield from self._dead(worker, ears)
            return
        worker.heard += heard
        if not worker.heard.endswith(b"\n"):
            return
        line, worker.heard, worker.task = worker.heard.strip(), b"", None
        if line.startswith(b'{"stop"'):
            raise Stopped(json.loads(line)["stop"])
        if line:
            yield SweepItem.model_validate_json(line)

    def _dead(self, worker: _Worker, ears: selectors.BaseSelector) -> Iterator[Outcome]:
        """A worker has died: its task goes to another one, unless it has cost enough of them."""
        task, code, words = worker.task, worker.process.wait(), worker.last_words()
        self._dismiss(worker, ears)
        if task is None:
            return
        self._deaths[task.key] = self._deaths.get(task.key, 0) + 1
        if self._deaths[task.key] < ATTEMPTS:
            self._again.append(task)
            return
        cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        cause += " (out of memory?)" if code == -signal.SIGKILL else ""
        told = f"its worker process died with {cause}, {ATTEMPTS} times{f': {words}' if words else ''}"
        yield failed(task.key, task.settings, "worker died", told)

    def _stuck(self, worker: _Worker, ears: selectors.BaseSelector) -> Iterator[Outcome]:
        task: Any = worker.task
        self._dismiss(worker, ears)
        limit = task.settings["time_limit"]
        told = f"did not stop at its time limit of {limit} s, nor {task.deadline_s:g} s after its start"
        yield failed(task.key, task.settings, "time limit", told)

    def _dismiss(self, worker: _Worker, ears: selectors.BaseSelector) -> None:
        ears.unregister(worker.pipe)
        self._workers.remove(worker)
        worker.end()
