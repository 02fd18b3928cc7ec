"""The views of an explanation: sections of sentences and small tables that fit the width, Markdown, records.

Contents: explanation_lines, explanation_records, explanation_markdown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.text import Text

from mapsearch.answer import Binding, Margin, RankedMapping
from mapsearch.comparison import Term
from mapsearch.explanation import Explanation, HoleCost, RulePrice, Stability, WhyNot, Win, findings
from mapsearch.reports import human
from mapsearch.reports.infeasible import why_not_lines
from mapsearch.reports.layout import Column, flowed, grid, grid_width, section
from mapsearch.reports.tables import heading, resting_lines, searched
from mapsearch.reports.verdicts import estimate_lines, relation_lines

_STYLE = {"exact": "bold green", "feasible": "bold yellow"}
CUT = "There may be more conflicts: --conflicts looks for more."
LARGEST = 6
"""Parts of a difference that are shown without `--verbose`."""


def explanation_lines(found: Explanation, *, width: int, verbose: bool = False, footer: bool = True) -> list[Text]:
    """The whole view of an explanation as styled lines no wider than `width` where that is possible."""
    width = max(width, 40)
    lines = heading(found, _verdict(found), _STYLE.get(found.status, "bold red"), width)
    if found.why_not is not None:
        lines += _why_not(found.why_not, width, verbose)
    if found.mapping is not None:
        lines += _mapping(found, found.mapping, width, verbose)
    lines += why_not_lines(found, width, verbose, cut=CUT)
    facts = [f"Space: {searched(found.space)}"]
    return [*lines, *resting_lines(facts, found, width, verbose=verbose)] if footer else lines


def _verdict(found: Explanation) -> str:
    if found.why_not is not None:
        why = found.why_not
        return f"why not {'this mapping' if why.complete else why.wish}: {_beside(why)}"
    if found.mapping is None:
        words = {"infeasible": "no mapping fits", "exact": "nothing was explained"}
        return words.get(found.status, "the search stopped before it found a mapping")
    return f"mapping {found.mapping.rank} takes {human.seconds(found.mapping.step_time_s, 4)}"


def _beside(why: WhyNot) -> str:
    """What became of a wish, beside what the run offers."""
    if why.mapping is None:
        return "it does not fit"
    if why.slower_by is None:
        return "it fits, and nothing that the run offers does"
    if why.slower_by == 0.0:
        return "it is the answer"
    if why.slower_by < 0.0:
        return f"it fits and is {human.percent(-why.slower_by)} faster than what the run offers"
    return f"it fits and is {human.percent(why.slower_by)} slower"


def _mapping(found: Explanation, mapping: RankedMapping, width: int, verbose: bool) -> list[Text]:
    lines = [Text(""), *estimate_lines(mapping, width)]
    nothing = flowed(found.binding_note, width=width, indent=2) if found.binding_note else []
    lines += section("What binds: the least relaxations that unlock something faster", nothing, width=width)
    if found.bindings:
        title = "What binds: the least relaxations that unlock something faster"
        lines += section(title, _bindings(found.bindings, width), width=width)
    lines += section("What rules cost", _rules(found.rules, width), width=width)
    lines += section("What holes cost: tokens per second with each repaired", _holes(found.holes, width), width=width)
    title = f"How far inputs may worsen before it loses rank {mapping.rank}"
    lines += section(title, [line for one in found.stability for line in _stable(one, width)], width=width)
    margins = mapping.margins if verbose else [m for m in mapping.margins if m.unit != "broken rules" and m.limit]
    lines += section("Margins", _margins(margins, width), width=width)
    return lines


def _margins(margins: Sequence[Margin], width: int) -> list[Text]:
    table = relation_lines(margins, width) if margins else []
    if all(line.cell_len <= width for line in table):
        return table
    told = [f"{m.relation}: {_value(m.margin, m.unit)} of {_value(m.limit, m.unit)} left" for m in margins]
    return [line for text in told for line in flowed(text, width=width, indent=2)]


def _bindings(bindings: Sequence[Binding], width: int) -> list[Text]:
    columns = [
        Column("change", [b.lever for b in bindings], left=True, style="cyan"),
        Column("step", [human.seconds(b.step_time_s, 4) for b in bindings]),
        Column("shorter", [human.percent(b.gain) for b in bindings]),
        Column("what it unlocks", [b.unlock.replace("->", "→") for b in bindings], left=True),
    ]
    if grid_width(columns) + 2 <= width:
        return grid(columns, indent=2)
    return [
        line
        for b in bindings
        for line in flowed(
            f"{b.lever} unlocks {b.unlock.replace('->', '→')}, step {human.percent(b.gain)} shorter",
            width=width,
            indent=2,
        )
    ]


def _rules(rules: Sequence[RulePrice], width: int) -> list[Text]:
    dear = [rule for rule in rules if rule.gain > 0.0]
    lines = []
    for rule in dear:
        text = f"{rule.words}: without it {rule.unlock.replace('->', '→')}, step {human.percent(rule.gain)} shorter"
        lines += flowed(text, width=width, indent=2)
    free = [rule.words for rule in rules if rule.gain <= 0.0 and rule.step_time_s is not None]
    if free:
        lines += flowed(f"cost nothing: {'; '.join(free)}", width=width, indent=2)
    return lines


def _holes(holes: Sequence[HoleCost], width: int) -> list[Text]:
    dear = [hole for hole in holes if hole.gain > 0.0 and hole.repaired_tokens_per_s is not None]
    lines = []
    for hole in dear:
        now, then = (human.scaled(rate, "") for rate in (hole.tokens_per_s, hole.repaired_tokens_per_s or 0.0))
        unlock = f", {hole.unlock.replace('->', '→')}" if hole.unlock else ""
        text = f"{hole.hole}: {now} → {then} tokens/s (+{human.percent(hole.gain)}), {hole.devices:,} devices{unlock}"
        lines += flowed(text, width=width, indent=2)
    free = [hole.hole for hole in holes if hole.gain <= 0.0 and hole.repaired_tokens_per_s is not None]
    if free:
        lines += flowed(f"cost nothing by themselves: {', '.join(free)}", width=width, indent=2)
    return lines


def _value(value: float, unit: str) -> str:
    if unit == "B/s":
        return human.scaled(value, "B/s")
    return human.measured(value, unit)


def _stable(one: Stability, width: int) -> list[Text]:
    now = _value(one.now, one.unit)
    if one.until is None:
        text = f"{one.input} ({now}): down to {_value(one.tried, one.unit)} and further"
    else:
        fall = human.percent(1.0 - one.until / one.now) if one.now else "0 %"
        about = "" if one.resolution == 0.0 else "about "
        what = one.what.replace("->", "→")
        text = f"{one.input} ({now}): down to {about}{_value(one.until, one.unit)} (-{fall}); {what}"
    return flowed(text, width=width, indent=2)


def _why_not(why: WhyNot, width: int, verbose: bool) -> list[Text]:
    said = [line for text in why.sentences for line in flowed(text.replace("->", "→"), width=width, indent=2)]
    lines = section(f"Why not {why.wish}", said, width=width)
    shown = why.mapping or why.edited
    if shown is not None:
        title = "What was asked for" if why.mapping else "The nearest that fits"
        lines += section(title, estimate_lines(shown, width), width=width)
    if why.mapping is not None and why.slower_by:
        lines += section("Step time, part by part", _terms(why.step_time_s, human.seconds, verbose, width), width=width)
        lines += section(
            "Memory of the worst stage", _terms(why.memory_bytes, human.amount, verbose, width), width=width
        )
        lines += section("When it would win", _wins(why.wins, width), width=width)
    return lines


def _terms(terms: Sequence[Term], write: Callable[[float], str], verbose: bool, width: int) -> list[Text]:
    *parts, whole = terms
    ranked = sorted(parts, key=lambda term: -abs(term.differences[1]))
    shown = [term for term in (ranked if verbose else ranked[:LARGEST]) if term.differences[1]]
    rows = [*shown, whole]
    signs = ["+" if term.differences[1] >= 0.0 else "-" for term in rows]
    told = [f"{sign}{write(abs(term.differences[1]))}" for sign, term in zip(signs, rows, strict=True)]
    columns = [
        Column("part", [term.name for term in rows], left=True),
        Column("fastest", [write(term.values[0]) for term in rows]),
        Column("this one", [write(term.values[1]) for term in rows]),
        Column("difference", told),
    ]
    wide = grid_width(columns) + 2 <= width
    return grid(columns if wide else [columns[0], columns[-1]], indent=2)


def _wins(wins: Sequence[Win], width: int) -> list[Text]:
    """The nearest change first; inputs that do not help together in one sentence."""
    helping = sorted((w for w in wins if w.value), key=lambda w: max(w.value / w.now, w.now / w.value))  # type: ignore[operator]
    lines = [line for win in helping for line in _win(win, width)]
    names = [name for name in dict.fromkeys(w.input for w in wins) if name not in {w.input for w in helping}]
    ranges = []
    for name in names:
        ends = [value for w in wins if w.input == name for value in w.tried]
        unit = next(w.unit for w in wins if w.input == name)
        ranges.append(f"{name} from {_value(min(ends), unit)} to {_value(max(ends), unit)}")
    if ranges:
        lines += flowed(f"not by any one of: {', '.join(ranges)}", width=width, indent=2, style="dim")
    return lines


def _win(win: Win, width: int) -> list[Text]:
    now = _value(win.now, win.unit)
    assert win.value is not None
    known = "it is then the fastest of all" if win.verified else "it then beats those known, others were not searched"
    text = f"{win.input} {now} → {_value(win.value, win.unit)}: {known}"
    return flowed(text, width=width, indent=2, style="bold" if win.verified else "")


def explanation_records(found: Explanation) -> list[dict[str, Any]]:
    """One record per finding with the same keys in each; numbers in SI units."""
    return findings(found)


def explanation_markdown(found: Explanation) -> str:
    """The explanation as a Markdown document: headings, and tables as preformatted text."""
    verdict, *rest = explanation_lines(found, width=110, verbose=True)
    return f"**{verdict.plain}**\n\n```text\n" + "\n".join(line.plain for line in rest) + "\n```\n"
