"""A sweep's results as data, CSV records and a table of what varies.

Contents: SCHEMA, RANKED_BY, varying, groups_of, default_groups, sweep_data, sweep_records, sweep_lines, plan_lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.text import Text

from mapsearch.reports import human
from mapsearch.reports.layout import Column, flowed, grid, section
from mapsearch.sweeps.record import SweepItem
from mapsearch.sweeps.run import Plan, SweepResult, flat
from mapsearch.sweeps.settings import counted, shown

SCHEMA = "mapsearch.sweep-summary/1"
RANKED_BY: dict[str, tuple[str, Callable[[SweepItem], float]]] = {
    "tokens-per-s": ("tokens/s", lambda record: -(record.tokens_per_s or 0.0)),
    "step-time": ("step time", lambda record: record.step_time_s or 0.0),
    "mfu": ("MFU", lambda record: -(record.mfu or 0.0)),
    "memory": ("memory", lambda record: record.peak_memory_bytes or 0.0),
}
"""What the best of a group is best in: its name in a sentence, and a number that is smaller the better."""
MOST_ROWS = 40
"""Items that a table lists unless all are asked for."""
MOST_ERRORS = 5
NO_GAP = 1e-9
"""A gap below this is how floats round."""
_ATTENTION = ("tp", "cp", "dp", "pp")
_EXPERT = ("etp", "ep", "edp")


def varying(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Names of the settings that differ between items, in the sweep's order."""
    names = dict.fromkeys(name for each in settings for name in each)
    return [name for name in names if len({shown(each.get(name)) for each in settings}) > 1]


def groups_of(result: SweepResult, group_by: Sequence[str], ranked_by: str) -> list[tuple[dict[str, Any], SweepItem]]:
    """Group and its best item, in the sweep's order; items without a mapping are left out, ties go to the first."""
    better = RANKED_BY[ranked_by][1]
    groups: dict[str, tuple[dict[str, Any], SweepItem]] = {}
    for record in result.records:
        if record.step_time_s is None:
            continue
        group = {name: record.settings.get(name) for name in group_by}
        name = shown(list(group.values()))
        if name not in groups or better(record) < better(groups[name][1]):
            groups[name] = (group, record)
    return list(groups.values())


def default_groups(result: SweepResult) -> list[str]:
    """What items are grouped by unless asked otherwise: the model, where there are several."""
    return [name for name in varying([record.settings for record in result.records]) if name == "model"]


def sweep_data(result: SweepResult, group_by: Sequence[str], ranked_by: str) -> dict[str, Any]:
    """The summary as plain data: counts, the best of each group, and every item."""
    return {
        "schema": SCHEMA,
        "name": result.name,
        "items": result.total,
        "missing": result.missing,
        "counts": result.counts(),
        "varying": varying([record.settings for record in result.records]),
        "ranked_by": ranked_by,
        "best": [{"group": group, "key": record.key} for group, record in groups_of(result, group_by, ranked_by)],
        "records": [record.model_dump(by_alias=True, exclude={"timings_s"}) for record in result.records],
    }


def sweep_records(result: SweepResult) -> list[dict[str, Any]]:
    """One record per item, all with the same keys, settings first."""
    rows = [flat(record) for record in result.records]
    settings = dict.fromkeys(name for record in result.records for name in record.settings)
    rest = dict.fromkeys(name for row in rows for name in row if name not in settings)
    return [{name: _cell(row.get(name)) for name in (*settings, *rest)} for row in rows]


def sweep_lines(
    result: SweepResult, group_by: Sequence[str], ranked_by: str, *, width: int, verbose: bool = False
) -> list[Text]:
    """The summary as a table: the verdict, what all items share, the best of each group, and the items."""
    counts = ", ".join(f"{count:,} {status}" for status, count in result.counts().items())
    missing = f", {result.missing:,} not run" if result.missing else ""
    lines = flowed(
        f"{result.name}: {counted(result.total, 'item')}: {counts or 'no results yet'}{missing}",
        width=width,
        style="bold",
    )
    if not result.records:
        return lines
    settings = [record.settings for record in result.records]
    names = varying(settings)
    shared = {name: shown(value) for name, value in settings[0].items() if name not in names and value is not None}
    lines += flowed("  ".join(f"{name}={value}" for name, value in shared.items()), width=width, style="dim")
    best = groups_of(result, group_by, ranked_by)
    if best and len(result.records) > 1:
        title = f"Best by {RANKED_BY[ranked_by][0]}" + (f", of each {' and '.join(group_by)}" if group_by else "")
        lines += section(title, _table([record for _, record in best], names), width=width)
    fitting = verbose or len(result.records) <= MOST_ROWS
    told = "Items" if fitting else f"Items: the first {MOST_ROWS} of {len(result.records):,} (all: --verbose)"
    lines += section(told, _table(result.records[: None if fitting else MOST_ROWS], names), width=width)
    return lines + section("Without a result", _errors(result, names, width, verbose=verbose), width=width)


def plan_lines(plan: Plan, *, width: int, verbose: bool = False) -> list[Text]:
    """What a sweep would run."""
    names = varying([item.settings for item in plan.items])
    lines = flowed(f"{plan.name}: {counted(len(plan.items), 'item')}", width=width, style="bold")
    shown_items = plan.items if verbose else plan.items[:MOST_ROWS]
    columns = [Column("#", [str(number) for number in range(1, len(shown_items) + 1)])]
    columns += [Column(name, [_value(item.settings, name) for item in shown_items], left=True) for name in names]
    columns.append(Column("key", [item.key[:12] for item in shown_items], left=True))
    if any(item.problem for item in shown_items):
        columns.append(Column("cannot be read", [str(item.problem or "") for item in shown_items], left=True))
    lines += grid(columns)
    more = len(plan.items) - len(shown_items)
    return lines + ([Text(f"and {more:,} more (all: --verbose)")] if more else [])


def _table(records: Sequence[SweepItem], names: Sequence[str]) -> list[Text]:
    """One row per item; figures that no item has are left out, and proof and gap where all are proven."""
    columns = [Column(name, [_value(record.settings, name) for record in records], left=True) for name in names]
    columns.append(Column("status", [record.status for record in records], left=True))
    figures: list[tuple[str, Callable[[SweepItem], str]]] = [
        ("step", lambda record: _told(record.step_time_s, lambda value: human.seconds(value, 4))),
        ("tokens/s", lambda record: _told(record.tokens_per_s, human.count)),
        ("MFU", lambda record: _told(record.mfu, human.percent)),
        ("worst HBM", lambda record: _told(record.peak_memory_bytes, human.amount)),
        ("exposed", lambda record: _told(record.exposed_fraction, human.percent)),
        ("gap", lambda record: _told(record.gap if (record.gap or 0.0) > NO_GAP else None, human.percent)),
    ]
    for title, told in figures:
        column = Column(title, [told(record) for record in records])
        if any(column.values):
            columns.append(column)
    axes = [axis for axis in (*_ATTENTION, *_EXPERT) if any(record.sizes.get(axis, 1) > 1 for record in records)]
    mappings = Column("mapping", [_mapping(record, axes) for record in records], left=True)
    return grid([*columns, mappings] if any(mappings.values) else columns)


def _mapping(record: SweepItem, axes: Sequence[str]) -> str:
    """The sizes that are more than 1 in some item: `TP8 DP4 | EP8 EDP4`."""
    if not record.sizes:
        return ""
    grids = [[axis for axis in axes if axis in grid] for grid in (_ATTENTION, _EXPERT)]
    return " | ".join(" ".join(f"{axis.upper()}{record.sizes.get(axis, 1)}" for axis in part) for part in grids if part)


def _errors(result: SweepResult, names: Sequence[str], width: int, *, verbose: bool) -> list[Text]:
    """Failed items with their reasons, the same reason once."""
    reasons: dict[str, list[str]] = {}
    for record in result.failures:
        if record.error is not None:
            item = (
                ", ".join(f"{name}={shown(record.settings[name])}" for name in names if name in record.settings)
                or "the item"
            )
            reasons.setdefault(f"{record.error.kind}: {record.error.message}", []).append(item)
    told = [
        f"{items[0]}{f' and {len(items) - 1:,} more' if len(items) > 1 else ''}: {reason}"
        for reason, items in reasons.items()
    ]
    most = len(told) if verbose else MOST_ERRORS
    lines = [line for text in told[:most] for line in flowed(text, indent=2, width=width)]
    more = len(told) - most
    return lines + ([Text(f"  and {more:,} reasons more (all: --verbose)")] if more > 0 else [])


def _value(settings: dict[str, Any], name: str) -> str:
    """A setting in a table; a dash where the item leaves it to its default."""
    value = settings.get(name)
    return "-" if value is None else shown(value)


def _told(value: float | None, write: Callable[[float], str]) -> str:
    return "" if value is None else write(value)


def _cell(value: Any) -> Any:
    return shown(value) if isinstance(value, list | dict) else value
