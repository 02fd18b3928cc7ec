"""The views of an audit: tables that fit the width, Markdown, records.

Contents: audit_lines, audit_records, audit_markdown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from mapsearch.audited import Audit, AxisAudit, LinkLoad
from mapsearch.reports import human
from mapsearch.reports.flat import markdown_table
from mapsearch.reports.layout import fitted, flowed, section
from mapsearch.reports.tables import resting_lines

_EXTRA = ("simulated", "measured")
"""Bandwidths that are there at times only."""
_FITS = 0.15
"""Share by which full bandwidth on the links may differ from a benchmark (docs/explanation/audit.md)."""
_PARTS = ((3, 4), (2, 3), (1, 2), (1, 3), (1, 4), (1, 8))
"""Parts of equal cables that a measured share is held against."""
_NEAR = 0.04
"""How near to such a part a share is called one."""
_SLIGHT = 0.001
"""Share of a step below which contention is not told."""
_FEW = 3
"""Overlaps and links shown before `--verbose` is needed for the rest."""
_OUTCOMES = {
    "fixpoint": "a fixpoint: the last audit told nothing new",
    "cycle": "a cycle: a mapping came back that had been audited",
    "bound": "the bound on rounds, not at a fixpoint",
    "nothing fits": "shares of bandwidth with which no mapping keeps every relation",
    "interrupted": "your interruption",
}
Table = tuple[str, Sequence[str], list[tuple[str, ...]]]
"""Heading, titles, rows; the first column stands left."""


def audit_lines(audit: Audit, *, width: int, verbose: bool = False, footer: bool = True) -> list[Text]:
    """The whole view of an audit as styled lines."""
    width = max(width, 40)
    lines = flowed(_headline(audit), width=width, style="bold green" if audit.holds else "bold yellow")
    lines += flowed(_about(audit), width=width, style="dim")
    for heading, titles, rows in _tables(audit, verbose):
        lines += section(heading, fitted(titles, rows, width=width), width=width)
    for heading, sentences in _lists(audit, verbose):
        body = [line for sentence in sentences for line in flowed(sentence, width=width, indent=2)]
        lines += section(heading, body, width=width)
    if footer:
        lines += resting_lines([], audit, width, verbose=verbose)
    return lines


def _headline(audit: Audit) -> str:
    off = [axis.axis for axis in audit.axes if axis.shares]
    within = human.percent(audit.tolerance)
    if not off:
        return f"Every axis gets what the level model assumes, within {within}: step {human.seconds(audit.step_time_s)}"
    change = audit.audited_step_time_s / audit.step_time_s - 1.0
    longer = f"{human.percent(abs(change))} {'longer' if change > 0 else 'shorter'}"
    before, after = (human.seconds(value, 4) for value in (audit.step_time_s, audit.audited_step_time_s))
    return (
        f"{', '.join(off)} differ{'s' if len(off) == 1 else ''} by more than {within} from the level model: step "
        f"{after} on the graph, {longer} than {before}"
    )


def _about(audit: Audit) -> str:
    about = audit.provenance
    return (
        f"{about.model} · {about.run} · {about.topology} · profile {about.profile} · {audit.devices:,} devices, "
        f"{audit.links:,} links one way"
    )


def rate(bytes_per_s: float | None) -> str:
    """A bandwidth: `45.2 GB/s`."""
    return "-" if bytes_per_s is None else f"{human.amount(bytes_per_s)}/s"


def _link(load: LinkLoad) -> str:
    return f"{load.source} → {load.target}"


def _tables(audit: Audit, verbose: bool) -> list[Table]:
    extra = [name for name in _EXTRA if any(getattr(axis, f"{name}_bytes_per_s") is not None for axis in audit.axes)]
    titles = ["axis", "sends", "groups", "level model", "routed", "ratio", "alone", *extra]
    rows = [_axis_row(axis, extra) for axis in audit.axes]
    found: list[Table] = [("Bandwidth of each axis, all its groups at once", titles, rows)]
    worst: list[tuple[str, ...]] = [
        (axis.axis, _link(axis.worst), human.amount(axis.worst.load_bytes), human.seconds(axis.worst.seconds))
        for axis in audit.axes
    ]
    found.append(("Its worst link, over a step", ("axis", "link", "load", "busy"), worst))
    limit = None if verbose else _FEW
    shown: list[tuple[str, ...]] = [
        (
            f"{each.hidden} under {each.other}",
            human.seconds(each.alone_s),
            human.seconds(each.together_s),
            f"{each.together_s / each.alone_s:.2f}",
            _link(each.link),
        )
        for each in audit.overlaps[:limit]
    ]
    found.append(("Axes that meet on a link at the same time", ("", "longer one", "both", "times", "link"), shown))
    links: list[tuple[str, ...]] = [
        (
            _link(load),
            f"{load.alike:,}",
            human.amount(load.load_bytes),
            human.seconds(load.seconds),
            human.percent(load.seconds / audit.audited_step_time_s),
            " ".join(f"{axis} {human.seconds(value)}" for axis, value in load.by_axis.items()),
        )
        for load in audit.busiest[:limit]
    ]
    found.append(("Busiest links over a step", ("link", "alike", "load", "busy", "of step", "by axis"), links))
    turns: list[tuple[str, ...]] = [
        (
            f"{number}",
            _seconds(turn.step_time_s),
            _seconds(turn.audited_step_time_s),
            "another mapping" if turn.changed else ("given" if number == 0 else "the same mapping"),
            _shares(turn.shares),
        )
        for number, turn in enumerate(audit.rounds)
    ]
    found.append(("Rounds", ("round", "step searched", "audited", "", "shares told to the next search"), turns))
    return [table for table in found if table[2]]


def _seconds(value: float | None) -> str:
    return "breaks a relation" if value is None else human.seconds(value, 4)


def _axis_row(axis: AxisAudit, extra: Sequence[str]) -> tuple[str, ...]:
    ways = "×".join(f"{ways}@{level}" for level, ways in axis.ways.items())
    return (
        f"{axis.axis} {ways}",
        axis.pattern,
        f"{axis.groups:,}",
        rate(axis.model_bytes_per_s),
        rate(axis.routed_bytes_per_s),
        f"{axis.ratio:.3f}",
        rate(axis.alone_bytes_per_s),
        *(rate(getattr(axis, f"{name}_bytes_per_s")) for name in extra),
    )


def _shares(shares: dict[str, dict[str, float]]) -> str:
    parts = [f"{axis}@{level} {share:.3f}" for axis, row in shares.items() for level, share in row.items()]
    return " ".join(parts) or "none"


def _lists(audit: Audit, verbose: bool) -> list[tuple[str, list[str]]]:
    return [*_machine(audit), *_contention(audit), *_feedback(audit)]


def _machine(audit: Audit) -> list[tuple[str, list[str]]]:
    """What was measured, as a part of what the links give."""
    told = []
    for axis in audit.axes:
        if axis.measured_bytes_per_s is None:
            continue
        share = axis.measured_bytes_per_s / axis.routed_bytes_per_s
        text = f"{axis.axis}: {rate(axis.measured_bytes_per_s)} measured, {human.percent(share)} of what the links give"
        if share > 1.0 + _FITS:
            text += ": more than they carry as they are described here; look at their rates"
        elif share >= 1.0 - _FITS:
            text += ", as far as links alone explain it"
        else:
            near = min(_PARTS, key=lambda part: abs(part[0] / part[1] - share))
            close = abs(share * near[1] / near[0] - 1.0) <= _NEAR
            text += f": as if {near[0]} in {near[1]} equal cables carried it" if close else ""
            text += "; links do not explain the rest"
        told.append(f"{text}.")
    return [("Measured against the links", told)] if told else []


def _contention(audit: Audit) -> list[tuple[str, list[str]]]:
    """What the background can cost where it goes before what stands in line."""
    known, most = audit.contended_step_time_s, audit.audited_step_time_s
    if known is None or not audit.overlaps or known <= most * (1.0 + _SLIGHT):
        return []
    return [
        (
            "Background and in line on one link",
            [
                f"The step counts both, one after the other: {human.seconds(most, 4)} with in-line messages first. "
                f"Where both get half of a link while both send, it is at most {human.seconds(known, 4)}, "
                f"{human.percent(known / most - 1.0)} longer (--contended)."
            ],
        )
    ]


def _feedback(audit: Audit) -> list[tuple[str, list[str]]]:
    """How the rounds ended."""
    if not audit.rounds:
        return []
    searched = len(audit.rounds) - 1
    text = f"{searched} search{'' if searched == 1 else 'es'}, ended at {_OUTCOMES[audit.outcome]}."
    times = [turn.audited_step_time_s for turn in audit.rounds]
    known = [time for time in times if time is not None]
    if not known:
        text += " None of the mappings keeps every relation on the graph."
    elif times[0] == min(known):
        text += " The mapping stays the best of those audited."
    else:
        best = audit.rounds[times.index(min(known))]
        shorter = "" if times[0] is None else f", {human.percent(1.0 - min(known) / times[0])} shorter"
        text += f" The best of the rounds takes {human.seconds(min(known), 4)} on the graph{shorter}: {best.mapping}"
    return [("What the feedback led to", [text])]


def audit_records(audit: Audit) -> list[dict[str, Any]]:
    """One record per axis; numbers in SI units."""
    return [
        {
            **{
                name: getattr(axis, name)
                for name in (
                    "axis", "pattern", "groups", "members", "model_bytes_per_s", "routed_bytes_per_s",
                    "alone_bytes_per_s", "simulated_bytes_per_s", "measured_bytes_per_s", "ratio",
                    "model_s", "routed_s",
                )
            },
            "worst_source": axis.worst.source,
            "worst_target": axis.worst.target,
            "worst_load_bytes": axis.worst.load_bytes,
            "worst_s": axis.worst.seconds,
            "shares": " ".join(f"{level}={share:.6g}" for level, share in axis.shares.items()),
        }
        for axis in audit.axes
    ]  # fmt: skip


def audit_markdown(audit: Audit) -> str:
    """The audit as a Markdown document."""
    body = [f"**{_headline(audit)}**", _about(audit)]
    for heading, titles, rows in _tables(audit, True):
        body += [f"## {heading}", markdown_table(titles, rows)]
    for heading, sentences in _lists(audit, True):
        body += [f"## {heading}", *sentences]
    body.append("\n".join(f"- {note}" for note in audit.notes))
    return "\n\n".join(part for part in body if part) + "\n"
