"""A sweep from its file to its results: what is there is kept, what is missing is run.

Contents: SweepProgress, SweepResult, Plan, plan_of, sweep, export.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mapsearch.answer import data_frame
from mapsearch.errors import InputError, UnknownName, UsageError
from mapsearch.interrupts import Interrupts, interruptible, requested
from mapsearch.records import validate
from mapsearch.sweeps import parquet
from mapsearch.sweeps.processes import InProcess, Processes, Runner
from mapsearch.sweeps.record import SweepItem, failed
from mapsearch.sweeps.resolve import Item, Reader
from mapsearch.sweeps.settings import Settings, counted
from mapsearch.sweeps.spec import Sweep, checked, combinations, load_sweep
from mapsearch.sweeps.store import PARQUET, Store
from mapsearch.sweeps.work import Task


@dataclass(frozen=True)
class SweepProgress:
    """How far a sweep is."""

    total: int
    kept: int
    """Items whose result was there before."""
    done: int = 0
    """Items that ran now."""
    failed: int = 0
    """Of both, those without a result."""


@dataclass(frozen=True)
class Plan:
    """The items of a sweep in order, each once."""

    name: str
    items: list[Item]
    remarks: list[str]
    reader: Reader
    """Has the documents as they were read: what runs is what was planned, though a file may change meanwhile."""


Source = str | Path | Mapping[str, Any] | Sweep | Plan
"""A sweep: its file, its data, its record, or its items."""


@dataclass(frozen=True)
class SweepResult:
    """A sweep's items with their results, in the sweep's order."""

    name: str
    folder: Path
    total: int
    records: list[SweepItem]
    """Items that have run, with the settings of this sweep; those that have not are left out."""
    kept: int
    """Of these, how many were there before."""
    interrupted: bool = False
    remarks: list[str] = field(default_factory=list)

    @property
    def failures(self) -> list[SweepItem]:
        """Items that ran and have no result."""
        return [record for record in self.records if not record.done]

    @property
    def missing(self) -> int:
        """Items that have not run."""
        return self.total - len(self.records)

    def counts(self) -> dict[str, int]:
        """How many items have each status."""
        found = Counter(record.status for record in self.records)
        return {
            status: found[status]
            for status in ("optimal", "feasible", "infeasible", "unknown", "failed")
            if found[status]
        }

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with a row per item. Raises BackendMissing when pandas is not installed."""
        return data_frame([flat(record) for record in self.records])


def flat(record: SweepItem) -> dict[str, Any]:
    """One item as a flat row: settings, figures, sizes and choices."""
    figures = record.model_dump(
        include={
            "status", "step_time_s", "tokens_per_s", "mfu", "devices", "gap", "proof", "peak_memory_bytes",
            "memory_limit_bytes", "exposed_fraction",
        }
    )  # fmt: skip
    if "devices" in record.settings:
        figures["devices_used"] = figures.pop("devices")
    error = record.error.message if record.error else ""
    return {**record.settings, **figures, **record.sizes, **record.choices, "error": error}


def plan_of(source: Source) -> Plan:
    """The items of a sweep. Raises InputError: the file is wrong, a name is unknown, or no item can be read."""
    folder = None
    if isinstance(source, Plan):
        return source
    if isinstance(source, Sweep):
        spec = checked(source, file=source.name)
    elif isinstance(source, Mapping):
        spec = checked(validate(Sweep, dict(source), file="sweep"), file="sweep")
    else:
        spec, folder = load_sweep(source), Path(source).parent
    try:
        settings, remarks = combinations(spec)
        reader = Reader(folder)
        with interruptible():
            items = _items(settings, reader, remarks)
    except UnknownName as problem:
        where = str(source) if folder is not None else spec.name
        raise UnknownName(problem.problem, file=where, field=problem.file) from None
    except InputError as problem:
        raise problem.within(str(source) if folder is not None else spec.name) from None
    return Plan(spec.name, items, remarks, reader)


def sweep(
    source: Source,
    folder: str | Path,
    *,
    jobs: int | None = None,
    scheduler: str | None = None,
    local_cluster: int | None = None,
    retry_failed: bool = False,
    progress: Callable[[SweepProgress], Any] | None = None,
    remark: Callable[[str], Any] | None = None,
) -> SweepResult:
    """Run the items of a sweep that have no result in `folder` yet, and give the results of all.

    `source` is a file, its data, a Sweep, or a Plan. Items run on `jobs` local processes (1: in this one; by default as
    many as there are cores), on the Dask cluster at `scheduler`, or on `local_cluster` Dask workers made here. Each
    result is on the disk (results.jsonl) before the next is taken: killed at any moment, the same call continues.
    Raises MapsearchError for what the user can mend; an item that fails is a record and no exception.
    """
    tell = remark or (lambda text: None)
    with Interrupts():
        runner = _runner(jobs, scheduler, local_cluster, tell)
        plan = plan_of(source)
        with Store(folder) as store:
            mine = {item.key for item in plan.items}
            if retry_failed:
                store.forget({key for key in mine if key in store.records and not store.records[key].done})
            kept = len(mine & set(store.records))
            remarks = [*plan.remarks, *store.remarks, *_about(plan, store, kept)]
            for text in remarks:
                tell(text)
            _run(plan, store, runner, kept, progress)
            result = _result(plan, store, kept, remarks)
            if parquet.available():
                _export(plan, store)
            else:
                tell(f"{PARQUET} is not written: pyarrow is not installed; pip install 'mapsearch[sweep]'")
            return result


def export(source: Source, folder: str | Path) -> SweepResult:
    """The results that are there, without running anything; results.parquet is written anew. Raises MapsearchError."""
    if not Path(folder).is_dir():
        raise UsageError("no such folder; run the sweep first", file=str(folder), field="--output")
    plan = plan_of(source)
    with Store(folder) as store:
        _export(plan, store)
        kept = len({item.key for item in plan.items} & set(store.records))
        return _result(plan, store, kept, [*plan.remarks, *store.remarks])


def _items(all_settings: list[Settings], reader: Reader, remarks: list[str]) -> list[Item]:
    """Items in order; those whose inputs are the same as an earlier one's are dropped with a remark."""
    found: dict[str, Item] = {}
    for settings in all_settings:
        item = reader.item(settings)
        found.setdefault(item.key, item)
    twice = len(all_settings) - len(found)
    if twice:
        remarks.append(f"run once, since an earlier item has the same inputs: {counted(twice, 'item')}")
    items = list(found.values())
    problems = [item.problem for item in items if item.problem is not None]
    if len(problems) == len(items):
        raise problems[0]
    return items


def _about(plan: Plan, store: Store, kept: int) -> list[str]:
    """What the folder holds already."""
    remarks = []
    if kept:
        bad = sum(not store.records[item.key].done for item in plan.items if item.key in store.records)
        told = f", {bad:,} of them failed (--retry-failed runs those again)" if bad else ""
        remarks.append(f"{kept:,} of {len(plan.items):,} items have a result in {store.folder} already{told}")
    others = len(store.records) - kept
    if others:
        remarks.append(
            f"of no item of this sweep: {counted(others, 'result')} in {store.folder}, kept in {store.path.name}"
        )
    return remarks


def _runner(jobs: int | None, scheduler: str | None, local_cluster: int | None, remark: Callable[[str], Any]) -> Runner:
    given = [
        name
        for name, value in (("jobs", jobs), ("scheduler", scheduler), ("local-cluster", local_cluster))
        if value is not None
    ]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other; give one of them", field=f"--{given[1]}")
    for name, value in (("jobs", jobs), ("local-cluster", local_cluster)):
        if value is not None and value < 1:
            raise UsageError(f"takes at least 1, not {value}", field=f"--{name}")
    if scheduler is not None or local_cluster is not None:
        from mapsearch.sweeps.cluster import Cluster

        return Cluster(scheduler=scheduler, workers=local_cluster or 0, remark=remark)
    count = jobs or _cores()
    return InProcess() if count == 1 else Processes(count)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run(plan: Plan, store: Store, runner: Runner, kept: int, watch: Callable[[SweepProgress], Any] | None) -> None:
    pending = [item for item in plan.items if item.key not in store.records]
    bad = sum(not store.records[item.key].done for item in plan.items if item.key in store.records)
    state = SweepProgress(len(plan.items), kept, failed=bad)
    if watch:
        watch(state)
    for record in _records(plan, pending, runner):
        store.append(record)
        state = SweepProgress(state.total, kept, state.done + 1, state.failed + (not record.done))
        if watch:
            watch(state)


def _records(plan: Plan, pending: list[Item], runner: Runner) -> Iterator[SweepItem]:
    """Records of items that could not be read, then of those that run."""
    for item in pending:
        if item.problem is not None:
            yield failed(item.key, item.settings, type(item.problem).__name__, str(item.problem))
    readable = [item for item in pending if item.problem is None]
    if readable and not requested():
        with runner:
            yield from runner.run(Task(item.key, item.settings, plan.reader.inputs(item)) for item in readable)


def _result(plan: Plan, store: Store, kept: int, remarks: list[str]) -> SweepResult:
    records = [record for _, record in _ordered(plan, store)]
    return SweepResult(plan.name, store.folder, len(plan.items), records, kept, requested(), remarks)


def _ordered(plan: Plan, store: Store) -> list[tuple[int, SweepItem]]:
    """Numbered records in the sweep's order, with the settings as this sweep writes them."""
    return [
        (number, store.records[item.key].model_copy(update={"settings": item.settings}))
        for number, item in enumerate(plan.items, start=1)
        if item.key in store.records
    ]


def _export(plan: Plan, store: Store) -> None:
    parquet.write_parquet(store.folder / PARQUET, _ordered(plan, store))
