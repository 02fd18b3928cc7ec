"""Why nothing fits, for people: conflicts, the least changes that help, what each rule rejects.

Contents: Conflicting, Infeasible, why_not_lines, conflict_lines, why_not_markdown, why_not_records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from rich.text import Text

from mapsearch.answer import Conflict, JointRelaxation, Relaxation
from mapsearch.reports import human
from mapsearch.reports.layout import Column, flowed, grid, grid_width, section

MANY = 4
"""Tallies shown before `--verbose` is needed for the rest."""
WHY = "these cannot hold together, and without any one of them the others could"
HELPS = "The least changes that help, each searched again"
COMPLETE = "There is no other minimal conflict."
CUT = "There may be more conflicts: mapsearch explain looks for up to ten."


class Conflicting(Protocol):
    """What every answer that nothing fits says."""

    @property
    def conflicts(self) -> list[Conflict]:
        """Minimal conflicts."""

    @property
    def conflicts_complete(self) -> bool:
        """Whether there are no others."""

    @property
    def relaxations(self) -> list[Relaxation]:
        """Changes of one lever."""


class Infeasible(Conflicting, Protocol):
    """What an answer and an explanation say of why nothing fits."""

    @property
    def joint(self) -> JointRelaxation | None:
        """The cheapest change of several."""

    @property
    def rejections(self) -> dict[str, int]:
        """Mappings that each relation alone rejects."""

    @property
    def first_rejections(self) -> dict[str, int]:
        """Mappings that each relation rejects first."""

    @property
    def rejections_note(self) -> str:
        """What was counted."""


def why_not_lines(found: Infeasible, width: int, verbose: bool, *, cut: str = CUT) -> list[Text]:
    """Why nothing fits: conflicts, the least changes that help, what each rule rejects; nothing when something does."""
    lines = conflict_lines(found, width, verbose, cut=cut)
    if found.joint:
        lines += section(_joint_title(found.joint), _joint_lines(found.joint, width), width=width)
    if found.rejections:
        alone = sorted(found.rejections.items(), key=lambda item: (-item[1], item[0]))
        body = flowed(f"alone: {_tally(alone, verbose)}", width=width, indent=2)
        first = list(found.first_rejections.items())
        if first:
            body += flowed(f"in this order: {_tally(first, verbose or len(first) <= 2 * MANY)}", width=width, indent=2)
        if verbose and found.rejections_note:
            body += flowed(found.rejections_note, width=width, indent=2, style="dim")
        lines += section("Mappings that each rule rejects", body, width=width)
    return lines


def conflict_lines(found: Conflicting, width: int, verbose: bool, *, cut: str = CUT) -> list[Text]:
    """Minimal conflicts, and the least changes that help."""
    own = [(number, one) for number, one in enumerate(found.conflicts, 1) if not one.restates]
    lines: list[Text] = []
    for number, one in own:
        place = "" if len(found.conflicts) == 1 else f", {number}"
        title = f"Why{place}: {WHY if number == 1 else 'nor can these'}"
        body = [
            line
            for place, sentence in enumerate(one.sentences, 1)
            for line in flowed(f"{place}. {sentence}", width=width, indent=2, hang=3)
        ]
        if one.statement:
            body += flowed(one.statement, width=width, indent=2, style="dim")
        fields = dict.fromkeys(name for names in one.fields for name in names)
        if verbose and fields:
            body += flowed(f"see {'; '.join(fields)}", width=width, indent=2, style="dim")
        lines += section(title, body, width=width)
    told = [text for text in (_restated(found.conflicts), _more(found, cut)) if text]
    lines += [line for text in told for line in flowed(text, width=width, style="dim")]
    if found.relaxations:
        lines += section(HELPS, _relaxation_lines(found.relaxations, width), width=width)
    return lines


def _restated(conflicts: Sequence[Conflict]) -> str:
    """Conflicts that are the same fact told by other rules, in a line."""
    again = [f"{' with '.join(one.relations)} (as {one.restates})" for one in conflicts if one.restates]
    return f"The same again by other rules: {', '.join(again)}." if again else ""


def _more(found: Conflicting, cut: str) -> str:
    """Whether these are all conflicts; nothing where the one and only says so by itself."""
    if not found.conflicts:
        return ""
    return COMPLETE if found.conflicts_complete else cut


def _relaxation_lines(found: Sequence[Relaxation], width: int) -> list[Text]:
    steps = ["" if one.step_time_s is None else human.seconds(one.step_time_s) for one in found]
    columns = [Column("change", [one.lever for one in found], left=True, style="cyan"), Column("step", steps)]
    wide = [*columns, Column("mapping that then fits", [one.mapping for one in found], left=True)]
    if grid_width(wide) + 2 <= width:
        return grid(wide, indent=2)
    lines = []
    for one, step in zip(found, steps, strict=True):
        lines += flowed(f"{one.lever}: step {step}" if step else one.lever, width=width, indent=2, style="cyan")
        lines += flowed(one.mapping, width=width, indent=4)
    return lines


def _joint_title(joint: JointRelaxation) -> str:
    weights = ", ".join(f"{name} {weight:g}" for name, weight in joint.weights.items())
    proven = "no cheaper one of the grid helps" if joint.proven else "cheaper ones were not all tried"
    return f"The cheapest change of several together, a doubling or halving costing {weights} ({proven})"


def _joint_lines(joint: JointRelaxation, width: int) -> list[Text]:
    step = "" if joint.step_time_s is None else f": step {human.seconds(joint.step_time_s)}"
    changes = " and ".join(change.lever for change in joint.changes)
    return [
        *flowed(f"{changes}, cost {joint.cost:.3g}{step}", width=width, indent=2, style="cyan"),
        *flowed(joint.mapping, width=width, indent=4),
        *flowed(f"grid: {joint.grid}", width=width, indent=4, style="dim"),
    ]


def _tally(counts: Sequence[tuple[str, int]], whole: bool) -> str:
    shown = counts if whole else counts[:MANY]
    text = ", ".join(f"{name} {human.count(number)}" for name, number in shown)
    return text + (f", and {len(counts) - len(shown)} more (--verbose)" if len(counts) > len(shown) else "")


def why_not_markdown(found: Infeasible, table: Any, *, cut: str = CUT) -> list[str]:
    """The same as parts of a Markdown document; `table` makes a table of titles and rows."""
    body = []
    for number, one in enumerate(found.conflicts, 1):
        head = f"Conflict {number} ({one.kind}{f', as {one.restates}' if one.restates else ''})"
        places = [f" ({'; '.join(names)})" if names else "" for names in one.fields or [[]] * len(one.sentences)]
        points = [f"- {sentence}{place}" for sentence, place in zip(one.sentences, places, strict=True)]
        body.append("\n".join([f"{head}: {one.statement or WHY}", "", *points]))
    body.append(_more(found, cut))
    changes = [(one.lever, _step(one.step_time_s), one.mapping) for one in found.relaxations]
    if found.joint:
        together = " and ".join(change.lever for change in found.joint.changes)
        changes.append((f"together: {together}", _step(found.joint.step_time_s), found.joint.mapping))
    body += [table(("change", "step", "mapping that then fits"), changes)] if changes else []
    names = dict.fromkeys((*found.first_rejections, *found.rejections))
    rows = [(name, f"{found.rejections.get(name, 0):,}", f"{found.first_rejections.get(name, 0):,}") for name in names]
    body += [table(("rule", "rejects alone", "rejects first"), rows), found.rejections_note] if rows else []
    return [part for part in body if part]


def _step(step_time_s: float | None) -> str:
    return "" if step_time_s is None else human.seconds(step_time_s)


def why_not_records(found: Infeasible) -> list[dict[str, Any]]:
    """One record per relaxation."""
    return [{**one.model_dump(), "dropped": "; ".join(one.dropped)} for one in found.relaxations]
