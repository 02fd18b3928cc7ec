"""The sections of a report: what is known of an answer's mapping, in the order of a reader's questions.

Contents: Known, Page, STAGES, dossier, sections_of, charts_of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mapsearch.answer import Answer, RankedMapping
from mapsearch.costs.estimate import Point
from mapsearch.explanation import Explanation
from mapsearch.front import Front
from mapsearch.reports import human
from mapsearch.reports.exports.charts import Bar, Chart
from mapsearch.reports.exports.charts import Point as Mark
from mapsearch.reports.exports.report import (
    Block,
    Column,
    Figure,
    ListBlock,
    Preformatted,
    Section,
    Table,
    TextBlock,
    report_html,
)
from mapsearch.reports.fronts import TITLES, value_text
from mapsearch.reports.tables import binding_text, placement_text, price_text, searched, sizes_text

STAGES = 32
"""Stages of a pipeline that the memory chart shows; of deeper ones evenly chosen, first and last among them."""
SHARE = 0.002
"""Of the whole: smaller parts are drawn as `other`."""


@dataclass(frozen=True)
class Known:
    """What a report is made of: an answer, the mapping looked at, and whatever else was computed of it."""

    answer: Answer
    mapping: RankedMapping
    point: Point
    front: Front | None = None
    explanation: Explanation | None = None
    more: tuple[Section, ...] = ()
    """Sections that other parts bring: timeline, topology, contract."""
    documents: dict[str, str] = field(default_factory=dict)
    """Input documents as text, by name."""


@dataclass(frozen=True)
class Page:
    """A report before it is written."""

    title: str
    summary: Sequence[str]
    sections: Sequence[Section]
    footer: str

    def html(self) -> str:
        """The report as one HTML file."""
        return report_html(self.title, self.summary, self.sections, self.footer)


def dossier(known: Known) -> Page:
    """The report of an answer's mapping."""
    about = known.answer.provenance
    model, cluster = (name.removesuffix(" (built in)") for name in (about.model, about.topology))
    return Page(f"{model} on {cluster}", _summary(known), sections_of(known), _footer(known))


def sections_of(known: Known) -> list[Section]:
    """All sections, in order; those without anything to say are left out by the page."""
    return [
        Section("ranking", "Ranked mappings", _ranking(known)),
        Section("front", "Time against memory", _front(known)),
        Section("step", "Where the time goes", _step(known)),
        Section("memory", "Where the memory goes", _memory(known)),
        Section("communication", "Communication by axis and level", _communication(known)),
        *(section for section in known.more if section.name != "contract"),
        Section("why", "Why this mapping", _why(known)),
        *(section for section in known.more if section.name == "contract"),
        Section("inputs", "Inputs and assumptions", _inputs(known)),
    ]


def charts_of(sections: Sequence[Section]) -> list[Chart]:
    """Every chart of a report's sections."""
    blocks = [block for section in sections for block in section.blocks]
    return [block.drawn for block in blocks if isinstance(block, Figure) and isinstance(block.drawn, Chart)]


def _summary(known: Known) -> list[str]:
    answer, mapping = known.answer, known.mapping
    status = {
        "optimal": "It is proven that no mapping is faster",
        "feasible": "It is the best that was found; a faster one is not excluded",
    }.get(answer.status, "")
    place = "The fastest mapping" if mapping.rank == 1 else f"The mapping of rank {mapping.rank}"
    texts = [
        f"{place} takes {human.seconds(mapping.step_time_s, 4)} per step on {mapping.devices:,} devices: "
        f"{human.count(mapping.tokens_per_s)} tokens/s, MFU {human.percent(mapping.mfu)}. {status}.",
        f"{sizes_text(mapping)}. The fullest stage ({mapping.worst_stage}) needs "
        f"{human.amount(mapping.peak_memory_bytes)} of {human.amount(mapping.memory_limit_bytes)}; "
        f"{human.percent(mapping.exposed_fraction)} of the step is exposed communication.",
        f"What binds: {binding_text(mapping)}." if mapping.binding else "",
        f"Step times of comparable runs: {answer.band.statement}." if answer.band else "",
    ]
    return [text for text in texts if text]


def _footer(known: Known) -> str:
    about = known.answer.provenance
    return f"mapsearch {about.version}; inputs " + ", ".join(
        f"{name} {digest[:12]}" for name, digest in about.input_sha256.items()
    )


def _ranking(known: Known) -> tuple[Block, ...]:
    columns = (Column("#", True), Column("step", True), Column("tokens/s", True), Column("MFU", True),
               Column("memory", True), Column("exposed", True), Column("sizes"), Column("choices"),
               Column("placement"))  # fmt: skip
    rows = tuple(
        (
            str(one.rank),
            human.seconds(one.step_time_s, 4),
            human.count(one.tokens_per_s),
            human.percent(one.mfu),
            human.amount(one.peak_memory_bytes),
            human.percent(one.exposed_fraction),
            sizes_text(one),
            ", ".join(f"{name} {word}" for name, word in one.choices.items()),
            placement_text(one),
        )
        for one in known.answer.mappings
    )
    space = TextBlock(f"Searched: {searched(known.answer.space)}.", dim=True)
    proofs = [f"{proof.backend}: {proof.status} ({proof.kind})" for proof in known.answer.proofs]
    return (Table(columns, rows), space, *((ListBlock(tuple(proofs)),) if proofs else ()))


def _front(known: Known) -> tuple[Block, ...]:
    """The exact front where one was given, else the ranked mappings, which are no front and are said not to be."""
    if known.front is not None and known.front.points:
        first, second = known.front.objectives[:2]
        marks = tuple(
            Mark(sizes_text(point.mapping), point.objectives[first], point.objectives[second], point.knee)
            for point in known.front.points
        )
        chart = Chart(
            name="front",
            title="The exact front; the knee is filled",
            kind="points",
            told=lambda value: value_text(second, value),
            points=marks,
            axes=(TITLES[first], TITLES[second]),
            told_x=lambda value: value_text(first, value),
        )
        return (Figure("No mapping is better than one of these in one respect without being worse in another.", chart),)
    if len(known.answer.mappings) < 2:
        return ()
    marks = tuple(
        Mark(
            f"rank {one.rank}: {sizes_text(one)}",
            one.step_time_s,
            one.peak_memory_bytes,
            one.rank == known.mapping.rank,
        )
        for one in known.answer.mappings
    )
    chart = Chart(
        name="ranked",
        title="Ranked mappings by step time and memory",
        kind="points",
        told=human.amount,
        points=marks,
        axes=("step time", "peak memory"),
        told_x=lambda value: human.seconds(value, 4),
    )
    words = "The ranked mappings only, and no front: mapsearch pareto computes one, and --front shows it here."
    return (Figure(words, chart),)


def _large(parts: dict[str, float]) -> tuple[tuple[str, float], ...]:
    """Parts worth drawing, the others together."""
    whole = sum(parts.values())
    shown = [(name, value) for name, value in parts.items() if value > SHARE * whole]
    rest = whole - sum(value for _, value in shown)
    return (*shown, *((("other", rest),) if rest > 0.0 and len(shown) < len(parts) else ()))


def _step(known: Known) -> tuple[Block, ...]:
    mapping = known.mapping
    falls = Chart(
        name="step",
        title="The step, part by part",
        kind="waterfall",
        told=lambda value: human.seconds(value, 3),
        bars=(Bar("step", _large(mapping.breakdown_s)),),
    )
    hidden = {
        name: (("exposed", min(mapping.exposed_s.get(name, 0.0), value)),
               ("hidden", max(value - mapping.exposed_s.get(name, 0.0), 0.0)))
        for name, value in mapping.communication_s.items() if value
    }  # fmt: skip
    exposed = Chart(
        name="exposed",
        title="Communication by class",
        kind="stacked",
        told=lambda value: human.seconds(value, 3),
        bars=tuple(Bar(name.upper(), parts) for name, parts in hidden.items()),
        names=("hidden", "exposed"),
    )
    texts = f"{human.count(mapping.microbatches)} microbatches; compute and exposed communication of the slowest stage."
    figures = [Figure(texts, falls)]
    if hidden:
        figures.append(Figure("What of each class of communication other work hides, and what it does not.", exposed))
    return tuple(figures)


def _chosen(count: int) -> list[int]:
    if count <= STAGES:
        return list(range(count))
    return sorted({round(place * (count - 1) / (STAGES - 1)) for place in range(STAGES)})


def _memory(known: Known) -> tuple[Block, ...]:
    stages = known.point.memory_by_stage_bytes
    shown = _chosen(len(stages))
    names = tuple(
        name for name, _ in _large({name: max(stage.get(name, 0.0) for stage in stages) for name in stages[0]})
    )
    bars = tuple(
        Bar(f"stage {place} ({known.mapping.layers_per_stage[place]} layers)"
            if place < len(known.mapping.layers_per_stage) else f"stage {place}", _merged(stages[place], names))
        for place in shown
    )  # fmt: skip
    chart = Chart(
        name="memory",
        title="Memory of every stage",
        kind="stacked",
        told=human.amount,
        bars=bars,
        limit=known.mapping.memory_limit_bytes,
        limit_label="usable",
    )
    some = f"{len(shown)} of {len(stages)} stages. " if len(shown) < len(stages) else ""
    return (Figure(f"{some}Usable is what the reserve leaves.", chart),)


def _merged(parts: dict[str, float], names: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """A stage's parts under the names that are drawn; what is not named is `other`."""
    named = [(name, parts.get(name, 0.0)) for name in names if name != "other"]
    rest = sum(parts.values()) - sum(value for _, value in named)
    return (*named, *((("other", rest),) if "other" in names else ()))


def _communication(known: Known) -> tuple[Block, ...]:
    fabric, mapping = known.point.facts.fabric, known.mapping
    columns = (Column("axis"), Column("size", True), *(Column(level.name) for level in fabric.levels))
    rows = tuple(
        (
            axis.upper(),
            f"{mapping.sizes[axis]:,}",
            *(f"cut {cuts[level.name]:,} ways" if level.name in cuts else "" for level in fabric.levels),
        )
        for axis, cuts in ((axis, mapping.placement.get(axis, {})) for axis in mapping.sizes if axis in _GRIDS)
        if mapping.sizes[axis] > 1
    )
    speed = ("bandwidth", "", *(f"{human.amount(level.bytes_per_s)}/s" for level in fabric.levels))
    latency = ("latency", "", *(human.seconds(level.latency_s) for level in fabric.levels))
    words = (
        "Levels from inside outwards; bandwidth per device and direction. A group communicates at every level that it "
        "is cut at."
    )
    return (Table(columns, (*rows, speed, latency)), TextBlock(words, dim=True))


_GRIDS = ("tp", "cp", "dp", "pp", "etp", "ep", "edp")


def _why(known: Known) -> tuple[Block, ...]:
    mapping, blocks = known.mapping, []
    said = [binding_text(mapping), *(price_text(one) for one in known.answer.prices)]
    found = known.explanation
    if found is not None:
        said += [f"{one.lever} unlocks {one.unlock}: step {human.percent(one.gain)} shorter" for one in found.bindings]
        said += [f"{one.words}: without it the step is {human.percent(one.gain)} shorter" for one in found.rules
                 if one.gain > 0.0]  # fmt: skip
        said += [f"{one.input}: {one.what}" for one in found.stability]
    blocks.append(ListBlock(tuple(dict.fromkeys(text.replace("->", "→") for text in said))))
    margins = [one for one in mapping.margins if one.unit != "broken rules" and one.limit]
    rows = tuple(
        (one.relation, "holds" if one.margin >= 0.0 else "broken", human.measured(one.demand, one.unit),
         human.measured(one.limit, one.unit), human.measured(one.margin, one.unit), one.reason)
        for one in margins
    )  # fmt: skip
    columns = (Column("relation"), Column(""), Column("demand", True), Column("limit", True), Column("margin", True),
               Column("in words"))  # fmt: skip
    return (*blocks, Table(columns, rows, "Margins"))


def _inputs(known: Known) -> tuple[Block, ...]:
    about = known.answer.provenance
    rows = tuple(
        (kind, str(getattr(about, kind)), about.input_sha256.get(kind, "")[:16])
        for kind in ("model", "run", "topology", "profile")
    )
    blocks: list[Block] = [Table((Column("input"), Column("name"), Column("SHA-256")), rows)]
    changed = [f"{option}: {', '.join(values)}" for option, values in about.overrides.items()]
    if changed:
        blocks += [TextBlock("Changed by options:"), ListBlock(tuple(changed))]
    if about.assumptions:
        blocks += [TextBlock("Assumed or fitted, not measured:"), ListBlock(tuple(about.assumptions))]
    if known.answer.notes:
        blocks += [TextBlock("Notes:"), ListBlock(tuple(known.answer.notes))]
    blocks += [Preformatted(f"{name}, as it was read", text) for name, text in known.documents.items()]
    return tuple(blocks)
