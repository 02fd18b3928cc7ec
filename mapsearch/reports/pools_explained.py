"""The views of an explanation of two pools: both sides, the four constraints, and the changes that help.

Contents: pools_explained_lines, pools_explained_records, pools_explained_markdown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from mapsearch.pools_explained import PoolChange, PoolConstraint, PoolsExplanation, ServingExplained, pools_findings
from mapsearch.reports import human
from mapsearch.reports.explanations import explanation_lines
from mapsearch.reports.infeasible import conflict_lines
from mapsearch.reports.layout import Column, flowed, grid, grid_width, section
from mapsearch.reports.pools import WORDS, pool_lines
from mapsearch.reports.tables import assumptions_text

CUT = "There may be more conflicts: --conflicts looks for more."
LIMITS = {
    "memory": "HBM limits the requests under way",
    "concurrency": "the rollout's concurrency limits the requests under way",
    "step": "neither HBM nor concurrency limits the requests under way",
}


def pools_explained_lines(
    found: PoolsExplanation, *, width: int, verbose: bool = False, footer: bool = True
) -> list[Text]:
    """The whole view as styled lines no wider than `width` where that is possible."""
    width = max(width, 40)
    pools = found.pools
    lines = pool_lines(pools, width=width, verbose=verbose) if pools.steady else _heading(found, width)
    if found.serving is not None:
        lines += section("A rollout replica", _serving(found.serving, width), width=width)
    lines += section("The four constraints", _constraints(found.constraints, width), width=width)
    title = f"The least changes that shorten the step by {human.percent(found.worthwhile)}, each searched again"
    lines += section(title, [*_changes(found, width), *_useless(found, width)], width=width)
    lines += conflict_lines(found, width, verbose, cut=CUT)
    if found.training is not None:
        lines += section(f"Training by itself on {pools.training_devices:,} devices", _slack(found, width), width=width)
        lines += explanation_lines(found.training, width=width, verbose=verbose, footer=False)
    if not footer:
        return lines
    said = [f"Note: {note}" for note in found.notes]
    if found.provenance.assumptions:
        said.append(f"Rests on {assumptions_text(found.provenance.assumptions, verbose)}")
    return [*lines, Text(""), *(line for text in said for line in flowed(text, width=width, style="dim"))]


def _heading(found: PoolsExplanation, width: int) -> list[Text]:
    pools = found.pools
    verdict = {"infeasible": "no pair of mappings fits any division"}.get(found.status, "no pair was found")
    head = flowed(f"{found.status.upper()}: {verdict}", width=width, style="bold red")
    names = f"{pools.model} · {pools.run} · {pools.topology} · rollout {pools.rollout}"
    return [*head, *flowed(names, width=width, style="dim")]


def _serving(one: ServingExplained, width: int) -> list[Text]:
    ledger = ", ".join(f"{name} {human.amount(value)}" for name, value in one.memory_bytes.items())
    free = f"{human.amount(one.free_bytes)} of {human.amount(one.limit_bytes)} left"
    texts = [
        f"HBM of its fullest device: {ledger}; {free}",
        f"decode step {_parts(one.decode_parts_s)}",
        f"one prompt {_parts(one.prefill_parts_s)}",
        f"{LIMITS[one.limited_by]} ({one.sequences:,} of {one.most_sequences:,} that fit): {one.reason}",
    ]
    return [line for text in texts for line in flowed(text, width=width, indent=2)]


def _parts(parts: dict[str, float]) -> str:
    slow = sorted(((name, value) for name, value in parts.items() if value > 0.0), key=lambda item: -item[1])
    return f"{human.seconds(sum(parts.values()))}: " + ", ".join(f"{name} {human.seconds(v)}" for name, v in slow)


def _constraints(rows: Sequence[PoolConstraint], width: int) -> list[Text]:
    if not rows:
        return []
    columns = [
        Column("", [row.name for row in rows], left=True, style="cyan"),
        Column("is", [human.measured(row.demand, row.unit) for row in rows]),
        Column("may be", [human.measured(row.limit, row.unit) for row in rows]),
        Column("margin", [human.measured(row.margin, row.unit) for row in rows]),
        Column("step without it", [human.seconds(row.without_s, 4) for row in rows]),
        Column("", [row.reason for row in rows], left=True, style="dim"),
    ]
    return grid(columns if grid_width(columns) + 2 <= width else columns[:-1], indent=2)


def _changes(found: PoolsExplanation, width: int) -> list[Text]:
    changes = found.changes
    if not changes:
        return []
    columns = [
        Column("change", [one.lever for one in changes], left=True, style="cyan"),
        Column("step", [human.seconds(one.step_s, 4) for one in changes]),
        Column("shorter", [human.percent(one.gain) for one in changes]),
        Column("train", [f"{one.training_devices:,}" for one in changes]),
        Column("roll out", [f"{one.rollout_devices:,}" for one in changes]),
    ]
    if grid_width(columns) + 2 <= width:
        return grid(columns, indent=2)
    return [line for one in changes for line in flowed(change_text(one), width=width, indent=2)]


def change_text(one: PoolChange) -> str:
    """A change in a sentence."""
    return (
        f"{one.lever}: step {human.seconds(one.step_s, 4)}, {human.percent(one.gain)} shorter, "
        f"{one.training_devices:,} devices train and {one.rollout_devices:,} roll out"
    )


def _useless(found: PoolsExplanation, width: int) -> list[Text]:
    if not found.useless:
        return []
    return flowed(f"not even: {'; '.join(found.useless)}", width=width, indent=2, style="dim")


def _slack(found: PoolsExplanation, width: int) -> list[Text]:
    steady = found.pools.steady
    if steady is None or steady.step_s <= steady.train_s * (1.0 + 1e-9):
        return flowed("it sets the step: what shortens it shortens the step until another limit counts", width=width,
                      indent=2)  # fmt: skip
    text = (
        f"it waits {human.seconds(steady.step_s - steady.train_s)} of every step for {WORDS[steady.binding]}; what "
        "makes it faster alone gains nothing, but may free devices"
    )
    return flowed(text, width=width, indent=2)


def pools_explained_records(found: PoolsExplanation) -> list[dict[str, Any]]:
    """One record per finding with the same keys in each; numbers in SI units."""
    return pools_findings(found)


def pools_explained_markdown(found: PoolsExplanation) -> str:
    """The explanation as a Markdown document."""
    verdict, *rest = pools_explained_lines(found, width=110, verbose=True)
    return f"**{verdict.plain}**\n\n```text\n" + "\n".join(line.plain for line in rest) + "\n```\n"
