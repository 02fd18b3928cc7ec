"""The sweep file: which settings are tried together.

Contents: MOST, Sweep, load_sweep, combinations.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from mapsearch import documents
from mapsearch.errors import InputError
from mapsearch.records import Inventory, validate
from mapsearch.sweeps.settings import Settings, check_setting, counted

MOST = 100_000
"""Most combinations of one sweep. A search takes a tenth of a second at the very least: this many take hours."""

Values = Annotated[list[Any], Field(min_length=1)]


class Sweep(Inventory):
    """Many searches: every combination of the grid and of the zipped lists, and items written out, over a base.

    A setting is `model`, `run`, `topology`, `profile` (a name or a file, looked for beside the sweep file first),
    `devices`, `top`, `backend`, `proof`, `certify`, `time_limit` (seconds per item), a field of a document
    (`run.sequence_length`, `model.moe.experts`, `topology.device.hbm`, `topology.levels.rack.bandwidth`), or a
    constraint (`fix.tp`, `allow.ep`, `at_most.pp`, `at_least.dp`, `inside.rack`).
    """

    kind: ClassVar[str] = "sweep"
    name: str = Field(default="sweep", min_length=1)
    base: dict[str, Any] = Field(default_factory=dict)
    """Setting: its value in every item, unless the item has its own."""
    grid: dict[str, Values] = Field(default_factory=dict)
    """Setting: values; every combination is an item, the last setting varying fastest."""
    zip: list[dict[str, Values]] = Field(default_factory=list)
    """Groups of lists of one length that vary together; groups combine with the grid and with each other."""
    items: list[dict[str, Any]] = Field(default_factory=list)
    """Items written out, after the combinations."""
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    """Combinations to leave out: items in which all of these settings have this value, or one of this list."""


def load_sweep(path: str | Path) -> Sweep:
    """A sweep file. Raises InputError naming file and field."""
    return checked(validate(Sweep, documents.load(path), file=str(path)), file=str(path))


def checked(sweep: Sweep, *, file: str) -> Sweep:
    """The sweep, when every setting and value in it can be one and it is not endless. Raises InputError."""
    for name, value in sweep.base.items():
        check_setting(name, value, file=file, field=f"base.{name}")
    for name, values in sweep.grid.items():
        for value in values:
            check_setting(name, value, file=file, field=f"grid.{name}")
    for index, group in enumerate(sweep.zip):
        _check_group(group, file=file, field=f"zip[{index}]")
    for index, item in enumerate(sweep.items):
        for name, value in item.items():
            check_setting(name, value, file=file, field=f"items[{index}].{name}")
    for index, rule in enumerate(sweep.exclude):
        if not rule:
            raise InputError(
                "is empty, and would leave out everything; name a setting", file=file, field=f"exclude[{index}]"
            )
        for name, value in rule.items():
            for each in (
                value if isinstance(value, list) and name.partition(".")[0] not in ("allow", "inside") else [value]
            ):
                check_setting(name, each, file=file, field=f"exclude[{index}].{name}")
    _check_once(sweep, file)
    _check_count(sweep, file)
    return sweep


def combinations(sweep: Sweep) -> tuple[list[Settings], list[str]]:
    """The items' settings in order, and remarks: what was left out, and rules that leave out nothing.

    Raises InputError when every combination is excluded.
    """
    kept, hits = [], [0] * len(sweep.exclude)
    for settings in _all(sweep):
        matching = [index for index, rule in enumerate(sweep.exclude) if _matches(rule, settings)]
        for index in matching:
            hits[index] += 1
        if not matching:
            kept.append(settings)
    left_out = _count(sweep) - len(kept)
    if not kept:
        raise InputError("leaves out every combination", field="exclude")
    remarks = [f"excluded: {counted(left_out, 'combination')}"] if left_out else []
    idle = [f"exclude[{index}]" for index, hit in enumerate(hits) if not hit]
    remarks += [f"{', '.join(idle)} matches no combination"] if idle else []
    return kept, remarks


def _all(sweep: Sweep) -> Iterator[Settings]:
    if sweep.grid or sweep.zip:
        grid = [[{name: value} for value in values] for name, values in sweep.grid.items()]
        groups = [
            [dict(zip(group, row, strict=True)) for row in zip(*group.values(), strict=True)] for group in sweep.zip
        ]
        for parts in itertools.product(*grid, *groups):
            yield {**sweep.base, **{name: value for part in parts for name, value in part.items()}}
    for item in sweep.items:
        yield {**sweep.base, **item}


def _matches(rule: dict[str, Any], settings: Settings) -> bool:
    missing = object()
    for name, wanted in rule.items():
        value = settings.get(name, missing)
        if value != wanted and not (isinstance(wanted, list) and value in wanted):
            return False
    return True


def _count(sweep: Sweep) -> int:
    lengths = [len(values) for values in sweep.grid.values()] + [len(next(iter(group.values()))) for group in sweep.zip]
    return (math.prod(lengths) if lengths else 0) + len(sweep.items)


def _check_count(sweep: Sweep, file: str) -> None:
    count = _count(sweep)
    if not count:
        raise InputError("has no items; give a grid, zipped lists or items", file=file, field="grid")
    if count > MOST:
        axes = [f"{len(values):,} {name}" for name, values in sweep.grid.items()]
        axes += [f"{len(next(iter(group.values()))):,} {'+'.join(group)}" for group in sweep.zip]
        raise InputError(
            f"{' x '.join(axes)} are {count:,} combinations; one sweep takes at most {MOST:,}", file=file, field="grid"
        )


def _check_group(group: dict[str, list[Any]], *, file: str, field: str) -> None:
    if not group:
        raise InputError("is empty; give two or more lists of one length", file=file, field=field)
    for name, values in group.items():
        for value in values:
            check_setting(name, value, file=file, field=f"{field}.{name}")
    lengths = {name: len(values) for name, values in group.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InputError(f"lists that vary together need one length; {told}", file=file, field=field)


def _check_once(sweep: Sweep, file: str) -> None:
    """A setting varies in one place: in two, one of them would be ignored."""
    seen: dict[str, str] = {}
    places = [("grid", sweep.grid), *((f"zip[{index}]", group) for index, group in enumerate(sweep.zip))]
    for place, group in places:
        for name in group:
            if name in seen:
                raise InputError(f"{name} varies in {seen[name]} as well", file=file, field=f"{place}.{name}")
            seen[name] = place
