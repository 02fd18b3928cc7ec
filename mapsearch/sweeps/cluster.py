"""Items on a Dask cluster: one that runs already, or one made here; the only module that imports Dask.

Contents: Cluster, dask_setup.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import queue
import re
import signal
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import mapsearch
from mapsearch.errors import BackendMissing, Stopped, UsageError
from mapsearch.interrupts import requested
from mapsearch.sweeps.processes import TICK_S, Outcome
from mapsearch.sweeps.record import SweepItem, failed
from mapsearch.sweeps.work import Task, solved

CONNECT_S = 15.0
"""How long to wait for a scheduler to answer."""


def dask_setup(worker: Any) -> None:
    """What a worker of a cluster made here does first: not hear Ctrl-C.

    A terminal sends it to all processes, and Dask's workers would leave with their items; only the sweep is to hear it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Cluster:
    """A Dask cluster by the address of its scheduler, or `workers` worker processes made here.

    Dask gives the item of a dead worker to another one; an item on which several workers have died has failed.
    Raises BackendMissing without Dask.
    """

    def __init__(
        self, *, scheduler: str | None = None, workers: int = 0, remark: Callable[[str], None] | None = None
    ) -> None:
        try:
            import distributed
        except ImportError:
            raise BackendMissing("dask.distributed is not installed; pip install 'mapsearch[sweep]'") from None
        if scheduler is not None and not re.fullmatch(r"[a-z]+://\S+:\d+", scheduler):
            raise UsageError(f"{scheduler!r} is no address; write tcp://host:port", field="--scheduler")
        self._dask: Any = distributed
        self._address = scheduler
        self._workers = workers
        self._remark = remark or (lambda text: None)
        self._cluster: Any = None
        self._client: Any = None

    def __enter__(self) -> Self:
        if self._address is None:
            self._cluster = self._made_here()
        try:
            self._client = self._dask.Client(self._address or self._cluster, timeout=CONNECT_S, set_as_default=False)
        except OSError:
            raise UsageError(
                f"no scheduler answers at {self._address} within {CONNECT_S:g} s", field="--scheduler"
            ) from None
        try:
            self._check_environments()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._client, self._cluster):
            if each is not None:
                with contextlib.suppress(OSError, TimeoutError):
                    each.close(timeout=5)

    def _made_here(self) -> Any:
        try:
            return self._dask.LocalCluster(
                n_workers=self._workers,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                silence_logs=50,
                preload=[__name__],
            )
        except RuntimeError as problem:
            raise Stopped(
                f"the workers of the local cluster do not start ({problem}); a script that sweeps needs "
                "`if __name__ == '__main__':`, since each worker imports it"
            ) from problem

    def _check_environments(self) -> None:
        """Refuse a cluster on which mapsearch cannot be imported: a worker that gets its tasks would die of them."""
        look = importlib.resources.files  # imports the package, and is there on any machine
        try:
            self._client.run_on_scheduler(look, "mapsearch")
            self._client.run(look, "mapsearch")
        except ImportError as problem:
            raise BackendMissing(
                f"the scheduler or a worker of {self.where} cannot import mapsearch ({problem}); "
                f"install mapsearch {mapsearch.__version__} on both"
            ) from None

    @property
    def where(self) -> str:
        """The scheduler's address."""
        return str(self._address or self._cluster.scheduler_address)

    def run(self, tasks: Iterator[Task]) -> Iterator[Outcome]:
        """Records as they come."""
        ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        running: dict[str, tuple[Any, Task]] = {}
        room, looked = self._room(before=1), time.monotonic()
        while True:
            while not requested() and len(running) < max(1, room):
                task = next(tasks, None)
                if task is None:
                    break
                running[task.key] = (self._submit(task, ready), task)
            if not running or (requested() and not room):
                return
            with contextlib.suppress(queue.Empty):
                key = ready.get(timeout=TICK_S)
                future, task = running.pop(key)
                yield from self._gathered(future, task)
            if time.monotonic() - looked > 1.0:  # workers come and go
                room, looked = self._room(before=room), time.monotonic()

    def _room(self, before: int) -> int:
        """Threads of the cluster. No task waits on a worker: when that dies, Dask blames all that it had."""
        try:
            room = int(sum(self._client.nthreads().values()))
        except (OSError, TimeoutError) as problem:
            raise self._gone() from problem
        if before and not room:
            self._remark(f"{self.where} has no workers; the items wait for one")
        return room

    def _submit(self, task: Task, ready: queue.SimpleQueue[Any]) -> Any:
        # The future's name is the item's: the scheduler, too, knows each item once. The random part keeps a result
        # of an earlier sweep, which may still be on the cluster, from being taken for this one's.
        future = self._client.submit(solved, task.to_text(), key=f"mapsearch-{self._client.id}-{task.key}", pure=False)
        future.add_done_callback(lambda done: ready.put(task.key))
        return future

    def _gathered(self, future: Any, task: Task) -> Iterator[Outcome]:
        """The record of an item that has ended; a result that died with its worker is computed again meanwhile."""
        try:
            line = future.result()
        except self._dask.KilledWorker as problem:
            died = getattr(problem, "allowed_failures", 3) + 1
            yield failed(task.key, task.settings, "worker died", f"{died} workers died while they ran it")
            return
        except (self._dask.client.FutureCancelledError, OSError) as problem:
            raise self._gone() from problem
        if line is not None:
            yield SweepItem.model_validate_json(line)

    def _gone(self) -> Stopped:
        return Stopped(
            f"the scheduler at {self.where} has gone; the results so far are kept, and the same command continues"
        )
