"""The table view of a solve: one screenful, made to fit the width.

Contents: solve_lines, heading, anatomy, footer_lines, searched, resting_lines, memory_text, placement_text,
layout_text, split_text, cut_text, better_text, sizes_text, binding_text, price_text, proof_text, assumptions_text.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from mapsearch.answer import Answer, Price, Proof, RankedMapping, Space
from mapsearch.axes import ATTENTION_GRID, EXPERT_GRID, USUAL_OVERLAP, first_stages
from mapsearch.reports import human
from mapsearch.reports.infeasible import why_not_lines
from mapsearch.reports.layout import Column, flowed, grid, grid_width, packed, section

if TYPE_CHECKING:
    from mapsearch.audited import Audit
    from mapsearch.explanation import Explanation
    from mapsearch.front import Front
    from mapsearch.guideline import Guidelines
    from mapsearch.parametric import Sensitivity
    from mapsearch.scaledown import ScaledDown

_STATUS_STYLE = {
    "optimal": "bold green",
    "feasible": "bold yellow",
    "infeasible": "bold red",
    "unknown": "bold red",
}
_SIZE_TITLES = {
    **{axis: axis.upper() for axis in (*ATTENTION_GRID, *EXPERT_GRID[:3])},
    "vpp": "VPP",
    "micro_batch": "b",
}
_OFTEN_SHARED = ("schedule", "recompute", "zero", "cp_kind", "dispatcher", "offload", "overlap")
"""Decisions said once above the table when all mappings agree on them."""
SHORT_LAYOUT = 16
"""Stages up to which a layout is written out, as `--layout` takes it."""
_MANY = 4
"""Assumptions of one input shown before `--verbose` is needed for the rest."""


def solve_lines(answer: Answer, *, width: int, verbose: bool = False, footer: bool = True) -> list[Text]:
    """The whole view of an answer as styled lines no wider than `width` where that is possible."""
    width = max(width, 40)
    lines = _header(answer, width)
    if answer.mappings:
        lines += [Text(""), *_ranking(answer.mappings, width)]
    if answer.band:
        lines += [Text(""), *flowed(band_text(answer), width=width, style="dim")]
    if answer.prices:
        lines += [Text(""), *(line for one in answer.prices for line in flowed(price_text(one), width=width))]
    if verbose and answer.best:
        lines += anatomy(answer.best, width)
    lines += why_not_lines(answer, width, verbose)
    if footer:
        lines += footer_lines(answer, width, verbose=verbose)
    return lines


def _header(answer: Answer, width: int) -> list[Text]:
    alike = len({mapping.devices for mapping in answer.mappings}) == 1
    devices = f" · {human.count(answer.mappings[0].devices)} devices" if alike else ""
    return heading(answer, _verdict(answer), _STATUS_STYLE[answer.status], width, more=devices)


def _verdict(answer: Answer) -> str:
    proven = [f"{p.backend} ({p.kind}) in {human.seconds(p.seconds)}" for p in answer.proofs if p.status == "proven"]
    stopped = "interrupted; " if answer.interrupted else ""
    if answer.status == "optimal":
        count = len(answer.mappings)
        what = "the fastest mapping is" if count == 1 else f"the {count} fastest mappings are"
        return f"{what} proven by {' and by '.join(proven)}" if proven else f"{what} proven"
    if answer.status == "feasible" and answer.best:
        text = f"{stopped}best {human.seconds(answer.best.step_time_s, 4)}"
        if answer.bound_s is None or answer.gap is None:
            return f"{text}; no lower bound is known, so it may be far from the fastest"
        if answer.gap == 0.0:
            return f"{text}; the bounds of the search meet it, no backend has proven the ranking"
        return f"{text}, lower bound {human.seconds(answer.bound_s, 4)}, gap {human.percent(answer.gap)}: not proven"
    if answer.status == "infeasible":
        return "no mapping fits" + (f", proven by {' and by '.join(proven)}" if proven else "")
    return f"{stopped}the search stopped before it found a mapping or excluded all of them"


def _ranking(mappings: Sequence[RankedMapping], width: int) -> list[Text]:
    """The table as wide as it fits, and under each row what the table had no room for."""
    agreed = {axis for axis in _OFTEN_SHARED if len({_decision(mapping, axis) for mapping in mappings}) == 1}
    shared = [axis for axis in _OFTEN_SHARED if axis in agreed] if len(mappings) > 1 else []
    told = [axis for axis in _OFTEN_SHARED if axis not in shared]
    words = [axis for axis in ("schedule", "recompute") if axis in told]
    numbers, sizes = _numbers(mappings), _sizes(mappings)
    choices = [
        ([*numbers, *sizes, *_words(mappings, words)], words),
        ([*numbers, *sizes, *_words(mappings, words[:1])], words[:1]),
        ([*numbers, *sizes], []),
        ([*numbers, *sizes[-2:], *_words(mappings, words[:1])], words[:1]),
        ([*numbers, *sizes[-2:]], []),
        (numbers, []),
    ]
    columns, done = next((pick for pick in choices if grid_width(pick[0]) <= width), choices[-1])
    lines = flowed(f"every mapping: {_spelled(mappings[0], shared)}", width=width, style="dim") if shared else []
    head, *rows = grid(columns)
    lines.append(head)
    bare = len(columns) == len(numbers)
    for mapping, line in zip(mappings, rows, strict=True):
        where = placement_text(mapping)
        if cell_len(where) > width - 4:
            where = placement_text(mapping, tight=True)
        details = [
            (where, "dim"),
            (f"VPP {mapping.sizes.get('vpp', 1)}, b {mapping.sizes.get('micro_batch', 1)}" if bare else "", ""),
            (_spelled(mapping, [axis for axis in told if axis not in done]), ""),
            (binding_text(mapping), "cyan" if mapping.binding else "dim"),
            (better_text(mapping), "cyan"),
        ]
        lines += [line, *packed(details, indent=4, width=width)]
    return lines


def step_text(mapping: RankedMapping) -> str:
    """The step time, marked when the model cannot tell the mapping from the first."""
    return f"{'' if mapping.separable else '≈ '}{human.seconds(mapping.step_time_s, 4)}"


def band_text(answer: Answer) -> str:
    """How far off step times may be, and what the mark on some of them means."""
    if answer.band is None:
        return ""
    alike = any(not mapping.separable for mapping in answer.mappings)
    mark = f"; ≈: closer than {human.percent(answer.band.order_share)}, not told apart from the first" if alike else ""
    return f"Step times ± {human.percent(answer.band.share)}{mark}. {answer.band.statement}."


def _numbers(mappings: Sequence[RankedMapping]) -> list[Column]:
    differ = len({mapping.devices for mapping in mappings}) > 1
    return [
        Column("#", [str(mapping.rank) for mapping in mappings]),
        Column("step", [step_text(mapping) for mapping in mappings], style="bold"),
        Column("tokens/s", [human.count(mapping.tokens_per_s) for mapping in mappings]),
        Column("MFU", [human.percent(mapping.mfu) for mapping in mappings]),
        Column("worst HBM", [memory_text(mapping) for mapping in mappings]),
        Column("exposed", [human.percent(mapping.exposed_fraction) for mapping in mappings]),
        *([Column("devices", [human.count(mapping.devices) for mapping in mappings])] if differ else []),
    ]


def _sizes(mappings: Sequence[RankedMapping]) -> list[Column]:
    """A column per size; VPP and the micro-batch stand last."""
    return [
        Column(title, [str(mapping.sizes.get(axis, 1)) for mapping in mappings], gap=2 if axis in ("tp", "etp") else 1)
        for axis, title in _SIZE_TITLES.items()
    ]


def _words(mappings: Sequence[RankedMapping], axes: Sequence[str]) -> list[Column]:
    return [Column(axis, [_decision(mapping, axis) for mapping in mappings], left=True) for axis in axes]


def memory_text(mapping: RankedMapping) -> str:
    """Peak of the worst stage and what is allowed: `74.1 of 81.6 GB`."""
    peak, limit = human.amount(mapping.peak_memory_bytes), human.amount(mapping.memory_limit_bytes)
    if peak.split()[-1] == limit.split()[-1]:
        peak = peak.split()[0]
    return f"{peak} of {limit}"


def _decision(mapping: RankedMapping, axis: str) -> str:
    return mapping.choices[axis] if axis in mapping.choices else str(mapping.sizes.get(axis, ""))


def _spelled(mapping: RankedMapping, axes: Sequence[str]) -> str:
    texts = {
        "zero": "ZeRO {}",
        "cp_kind": "{} CP",
        "dispatcher": "{} dispatch",
        "offload": "offload {}",
        "recompute": "recompute {}",
        "overlap": "overlap {}",
    }
    decisions = {axis: _decision(mapping, axis) for axis in axes}
    if decisions.get("overlap") == USUAL_OVERLAP:
        del decisions["overlap"]
    return ", ".join(texts.get(axis, "{}").format(value) for axis, value in decisions.items() if value)


def sizes_text(mapping: RankedMapping) -> str:
    """Sizes in a line: `TP8 CP16 DP4 PP8 | ETP1 EP64 EDP8 | VPP5 b1 ZeRO1`."""
    size = mapping.sizes
    grids = [
        " ".join(f"{axis.upper()}{size.get(axis, 1)}" for axis in axes) for axes in (ATTENTION_GRID, EXPERT_GRID[:3])
    ]
    return " | ".join([*grids, f"VPP{size.get('vpp', 1)} b{size.get('micro_batch', 1)} ZeRO{size.get('zero', 0)}"])


def placement_text(mapping: RankedMapping, *, tight: bool = False) -> str:
    """Where each axis lives, innermost level first: `tp 8@board, cp 8@rack×2@pod | ep 8@board×8@rack`."""

    def cut(axis: str) -> str:
        ways = [f"{n}@{level}" for level, n in mapping.placement.get(axis, {}).items() if n > 1]
        return f"{axis}{'' if tight else ' '}{'×'.join(ways)}" if ways else ""

    comma = " " if tight else ", "
    sides = [comma.join(filter(None, map(cut, axes))) for axes in (ATTENTION_GRID, EXPERT_GRID[:3])]
    return " | ".join(filter(None, [*sides, layout_text(mapping), split_text(mapping)])) or "one device"


def layout_text(mapping: RankedMapping) -> str:
    """The layers of each stage where the mapping cuts them itself, runs of equal stages together: `layers 3 2×4 3`."""
    return f"layers {cut_text(mapping.layout)}" if mapping.layout else ""


def split_text(mapping: RankedMapping) -> str:
    """On which stages it recomputes, where not on all: `recompute on the first 2 stages`."""
    return f"recompute on the {first_stages(mapping.recompute_stages)}" if mapping.recompute_stages else ""


def cut_text(layers: Sequence[int]) -> str:
    """Layers of each stage, runs of equal stages together: `3 2×4 3`."""
    runs = [(count, len(list(alike))) for count, alike in groupby(layers)]
    return " ".join(f"{n}×{count}" if n > 1 else str(count) for count, n in runs)


def better_text(mapping: RankedMapping) -> str:
    """The layout that would be faster, or fit: `layout 7-8-8-7 would be 1.2 % faster`; empty without one."""
    better = mapping.better_layout
    if better is None:
        return ""
    gain = 1.0 - better.step_time_s / mapping.step_time_s
    worth = f"fit: step {human.seconds(better.step_time_s, 4)}" if better.fits else f"be {human.percent(gain)} faster"
    short = len(better.layout) <= SHORT_LAYOUT
    written = "layout " + "-".join(map(str, better.layout)) if short else f"layers {cut_text(better.layout)}"
    return f"{written} would {worth}"


def binding_text(mapping: RankedMapping) -> str:
    """What binds and what relaxing it would unlock, in a line."""
    binding = mapping.binding
    if binding is None:
        return mapping.binding_note or "nothing binds alone: no single relaxation was found that helps"
    return (
        f"{binding.relation} binds: {binding.lever} unlocks {binding.unlock.replace('->', '→')}, "
        f"step {human.percent(binding.gain)} shorter"
    )


def price_text(price: Price) -> str:
    """The price of an axis inside the high-bandwidth domain: `EP inside one board costs +11.8 %: 150.2 s`."""
    where = f"{price.axis.upper()} inside one {price.unit}"
    if price.step_time_s is None or price.price is None:
        return f"{where}: no mapping is feasible"
    if price.price == 0.0:
        return f"{where} costs nothing: the fastest mapping is one of those"
    return f"{where} costs +{human.percent(price.price)}: {human.seconds(price.step_time_s, 4)}"


def anatomy(mapping: RankedMapping, width: int) -> list[Text]:
    """Where the time and the memory of one mapping go."""

    def parts(title: str, values: dict[str, float], whole: float, show: str) -> list[Text]:
        write = human.amount if show == "bytes" else human.seconds
        texts = [f"{name} {write(value)} ({human.percent(value / whole)})" for name, value in values.items() if value]
        return flowed(f"{title}: {', '.join(texts)}", width=width, indent=2) if texts and whole > 0 else []

    step = mapping.step_time_s
    stages = f"layers per stage: {' '.join(map(str, mapping.layers_per_stage))}"
    body = [
        *parts(f"step {human.seconds(step)}", mapping.breakdown_s, step, "s"),
        *parts("communication, hidden or not", mapping.communication_s, step, "s"),
        *parts("exposed", mapping.exposed_s, step, "s"),
        *parts(f"stage {mapping.worst_stage}", mapping.memory_bytes, mapping.peak_memory_bytes, "bytes"),
        *flowed(f"{stages}; {human.count(mapping.microbatches)} microbatches", width=width, indent=2),
    ]
    return section(f"Mapping {mapping.rank} in detail", body, width=width)


def footer_lines(answer: Answer, width: int, *, verbose: bool) -> list[Text]:
    """What was searched, what was not proven, what the numbers rest on."""
    return resting_lines([f"Space: {searched(answer.space)}"], answer, width, verbose=verbose)


def searched(space: Space) -> str:
    """How much a search went through."""
    return (
        f"{human.count(space.mappings)} mappings in {human.count(space.cells)} cells, "
        f"{human.count(space.pairs_evaluated)} pairs evaluated"
    )


def resting_lines(
    facts: Sequence[str],
    result: Answer | Audit | Front | Sensitivity | Explanation | Guidelines | ScaledDown,
    width: int,
    *,
    verbose: bool,
) -> list[Text]:
    """Facts about a search, then what was not proven, what the numbers rest on, and notes."""
    told = [
        *facts,
        *(proof_text(proof) for proof in getattr(result, "proofs", []) if verbose or proof.status != "proven"),
    ]
    if result.provenance.assumptions:
        told.append(f"Rests on {assumptions_text(result.provenance.assumptions, verbose)}")
    told += [f"Note: {note}" for note in result.notes]
    return [Text(""), *(line for fact in told for line in flowed(fact, width=width, style="dim"))]


def heading(
    result: Answer | Front | Sensitivity | Explanation | Guidelines | ScaledDown,
    verdict: str,
    style: str,
    width: int,
    *,
    more: str = "",
) -> list[Text]:
    """The status and what it means, and the inputs that it is about."""
    head = flowed(f"{result.status.upper()}: {verdict}", width=width, hang=2)
    head[0].stylize(style, 0, len(result.status))
    about = result.provenance
    inputs = f"{about.model} · {about.run} · {about.topology} · profile {about.profile}{more}"
    return [*head, *flowed(inputs, width=width, style="dim")]


def assumptions_text(sentences: Sequence[str], verbose: bool) -> str:
    """Assumptions by where they stand: `topology asic: HBM 96 GB (assumed), ...`; the first of each in short."""
    by_home: dict[str, list[str]] = {}
    for sentence in sentences:
        home, found, fact = sentence.partition(": ")
        by_home.setdefault(home if found and "(" not in home else "", []).append(fact if found else sentence)
    texts = []
    for home, facts in by_home.items():
        shown = facts if verbose else facts[:_MANY]
        more = f", and {len(facts) - len(shown)} more" if len(facts) > len(shown) else ""
        texts.append(f"{home}{': ' if home else ''}{', '.join(shown)}{more}")
    hint = "" if verbose or all(len(facts) <= _MANY for facts in by_home.values()) else " (all: --verbose)"
    return "; ".join(texts) + hint


def proof_text(proof: Proof) -> str:
    """One proof in a line."""
    bound = "" if proof.bound_s is None else f", bound {human.seconds(proof.bound_s, 4)}"
    detail = f": {proof.detail}" if proof.detail else ""
    return f"Proof by {proof.backend} ({proof.kind}): {proof.status} in {human.seconds(proof.seconds)}{bound}{detail}"
