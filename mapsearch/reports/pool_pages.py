"""Sections of a report about two pools: who has which devices, what sets the step, publishing, a replica, the loop.

Contents: PoolsKnown, pools_dossier, pool_sections.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mapsearch.expert_load import ExpertLoad
from mapsearch.loop import LoopReport
from mapsearch.pooled import PublishPlan, ServingPlan, Steady, TwoPools
from mapsearch.pools_explained import PoolsExplanation
from mapsearch.reports import human
from mapsearch.reports.dossier import Page
from mapsearch.reports.exports.charts import Bar, Chart, Line
from mapsearch.reports.exports.division import Divided, division_svg
from mapsearch.reports.exports.report import Block, Column, Figure, ListBlock, Section, Table, TextBlock
from mapsearch.reports.load_pages import load_section
from mapsearch.reports.loop_pages import loop_section
from mapsearch.reports.pools import STATUS, WORDS
from mapsearch.reports.pools_explained import LIMITS, change_text
from mapsearch.reports.tables import placement_text, sizes_text

ROUTE = ("quantise", "transfer", "reshard", "verify", "switch")
"""Stages of publishing in their order."""


@dataclass(frozen=True)
class PoolsKnown:
    """What a report about two pools is made of."""

    answer: TwoPools
    loop: LoopReport | None = None
    load: ExpertLoad | None = None
    explanation: PoolsExplanation | None = None


def pools_dossier(known: PoolsKnown, training: Page | None = None) -> Page:
    """The report of both pools, and of the training side where its own report is given."""
    answer = known.answer
    theirs = training.sections if training is not None else ()
    sections = [
        *pool_sections(known),
        *(replace(section, name=f"training-{section.name}", title=f"Training: {section.title}") for section in theirs),
    ]
    about = answer.provenance
    footer = f"mapsearch {about.version}; inputs " + ", ".join(
        f"{name} {digest[:12]}" for name, digest in about.input_sha256.items()
    )
    title = f"{answer.model} on {answer.topology}: training and rollout {answer.rollout}"
    return Page(title, _summary(answer), sections, footer)


def _summary(answer: TwoPools) -> list[str]:
    """The answer in a few sentences."""
    steady = answer.steady
    if steady is None:
        verdict = "No pair of mappings fits any division of the devices" if answer.status == "infeasible" else (
            "The search was stopped before it found a pair of mappings"
        )  # fmt: skip
        return [f"{verdict}: {answer.run}, rollout {answer.rollout}."]
    proven = {"optimal": "It is proven that no pair on any division is better"}.get(
        answer.status, "It is the best that was found; a better one is not excluded"
    )
    binds = f"What binds: {WORDS[steady.binding]}"
    if steady.binding != "train":
        binds += f"; without it alone the step were {human.seconds(steady.without_binding_s, 4)}"
    return [
        f"Training consumes {human.scaled(steady.tokens_per_s, '').strip()} RL tokens/s: a step takes "
        f"{human.seconds(steady.step_s, 4)}, of which training trains {human.percent(steady.duty)}. {proven}.",
        f"{answer.training_devices:,} devices train and {answer.rollout_devices:,} roll out.",
        f"{binds}.",
        f"Samples are at most {steady.version_lag:g} of {steady.versions} allowed versions old, and "
        f"{human.seconds(steady.age_s)}.",
    ]


def pool_sections(known: PoolsKnown) -> list[Section]:
    """All sections about both pools, in order; those without anything to say are left out by the page."""
    answer, told = known.answer, known.explanation
    steady, plan, publishing = answer.steady, answer.serving, answer.publishing
    if steady is None or plan is None or publishing is None:
        return [Section("why", "Why nothing fits", _why_not(answer)), Section("inputs", "Inputs", _inputs(answer))]
    return [
        Section("pools", "Who has which devices", _division(answer, plan)),
        Section("pacing", "What sets the step", _pacing(steady, told)),
        *([loop_section(known.loop)] if known.loop else []),
        Section("publishing", "Publishing a version", _publishing(publishing)),
        Section("serving", "A rollout replica", _serving(plan, told)),
        *([load_section(known.load)] if known.load else []),
        Section("pool-inputs", "Inputs of both pools", _inputs(answer)),
    ]


def _division(answer: TwoPools, plan: ServingPlan) -> tuple[Block, ...]:
    sizes = sorted({one.training_devices for one in answer.divisions})
    unit = sizes[0] if len(sizes) > 1 else max(1, plan.devices_per_replica)
    mapping = answer.mapping
    idle = getattr(answer, "idle_devices", 0)
    some = f"{plan.replicas:,} replica{'' if plan.replicas == 1 else 's'} of {plan.devices_per_replica:,} devices"
    sides = [
        Divided("train", answer.training_devices, f"{answer.training_devices:,} devices train"),
        Divided("roll out", answer.rollout_devices, f"{answer.rollout_devices:,} devices roll out: {some}"),
        Divided("stay unused", idle, f"{idle:,} devices stay unused"),
    ]
    split = f", {plan.prefill_replicas:,} of them for prompts" if plan.prefill_replicas else ""
    texts = [f"Training: {sizes_text(mapping)}; {placement_text(mapping)}"] if mapping else []
    rate = human.scaled(plan.tokens_per_s, "").strip()
    texts.append(
        f"Rollout: {some}{split}; TP{plan.tp} DP{plan.dp} EP{plan.ep} ETP{plan.etp}, "
        f"{plan.sequences_per_replica:,} requests each, {rate} effective tokens/s"
    )
    blocks: list[Block] = [
        Figure("A square is one outer unit of the cluster, or equally many of them.", division_svg(sides, unit)),
        ListBlock(tuple(texts)),
    ]
    return (*blocks, *_divisions(answer))


def _divisions(answer: TwoPools) -> tuple[Block, ...]:
    """Bound and step over the devices that train, and every division in a table."""
    told = answer.divisions
    bounds = tuple((float(one.training_devices), one.bound_s) for one in told if one.bound_s is not None)
    steps = tuple((float(one.training_devices), one.step_s) for one in told if one.step_s is not None)
    if len(bounds) < 2:
        return ()
    shown = answer.steady.step_s if answer.steady else 0.0
    near = tuple((devices, bound) for devices, bound in bounds if bound <= 3.0 * shown) or bounds
    chart = Chart(
        name="divisions",
        title="No step below, by devices that train",
        kind="lines",
        told=human.seconds,
        lines=(Line("no step below", near), *((Line("step of its best pair", steps),) if len(steps) > 1 else ())),
        limit=shown,
        limit_label="the answer's step",
        axes=("devices that train", ""),
        told_x=lambda value: f"{value:,.0f}",
        names=("no step below", "step of its best pair"),
    )
    columns = (Column("train", True), Column("roll out", True), Column("no step below", True), Column("step", True),
               Column("what became of it"))  # fmt: skip
    rows = tuple(
        (f"{one.training_devices:,}", f"{one.rollout_devices:,}",
         "" if one.bound_s is None else human.seconds(one.bound_s),
         "" if one.step_s is None else human.seconds(one.step_s), STATUS[one.status])
        for one in told
    )  # fmt: skip
    words = "What is bounded above the answer's step cannot be better; bounds over three steps are not drawn."
    return (Figure(words, chart), Table(columns, rows, "Divisions of the devices"))


def _pacing(steady: Steady, told: PoolsExplanation | None) -> tuple[Block, ...]:
    rows = (
        ("training", steady.train_s, "the training step by itself"),
        ("supply", steady.supply_s, "until rollout has made a batch, switches included"),
        ("age", steady.fresh_s, f"so that no sample is over {steady.versions} versions old"),
        ("publishing", steady.repeated_s, "until a version has arrived before the next"),
    )
    chart = Chart(
        name="pacing",
        title="What a step takes at least",
        kind="stacked",
        told=lambda value: human.seconds(value, 3),
        bars=tuple(Bar(name, (("a step of at least", value),)) for name, value, _ in rows),
        limit=steady.step_s,
        limit_label="step",
    )
    blocks: list[Block] = [
        Figure("The step is as long as the longest of the four.", chart),
        ListBlock(tuple(f"{name}: {human.seconds(value, 4)}, {words}" for name, value, words in rows)),
        TextBlock(
            f"The queue holds {steady.held_batches:g} batches of {human.count(steady.batch_tokens)} tokens (at least "
            f"{steady.least_batches:g}, at most {steady.most_batches:g}); training waits "
            f"{human.seconds(steady.wait_s)} of every step."
        ),
    ]
    if told is not None:
        columns = (Column("constraint"), Column("is", True), Column("may be", True), Column("margin", True),
                   Column("step without it", True), Column(""))  # fmt: skip
        table = tuple(
            (row.name, human.measured(row.demand, row.unit), human.measured(row.limit, row.unit),
             human.measured(row.margin, row.unit), human.seconds(row.without_s, 4), row.reason)
            for row in told.constraints
        )  # fmt: skip
        blocks.append(Table(columns, table, "The four constraints"))
        if told.changes:
            least = human.percent(told.worthwhile)
            blocks.append(TextBlock(f"Least changes that shorten the step by {least}, each searched again:"))
            blocks.append(ListBlock(tuple(change_text(one) for one in told.changes)))
        if told.useless:
            blocks.append(TextBlock(f"Not even: {'; '.join(told.useless)}.", dim=True))
    return tuple(blocks)


def _publishing(plan: PublishPlan) -> tuple[Block, ...]:
    order = [name for name in ROUTE if name in plan.stages_s]
    order += [name for name in plan.stages_s if name not in order]
    chart = Chart(
        name="publishing",
        title="From the end of a step to the first token of the new version",
        kind="waterfall",
        told=lambda value: human.seconds(value, 3),
        bars=(Bar("one after the other", tuple((name, plan.stages_s[name]) for name in order)),),
    )
    bound = Chart(
        name="transfer",
        title="The transfer beside its lower bound",
        kind="stacked",
        told=lambda value: human.seconds(value, 3),
        bars=(
            Bar("transfer", (("transfer", plan.stages_s["transfer"]),)),
            Bar("no transfer is shorter", (("bound", plan.bound_s),)),
        ),
        limit=plan.bound_s,
        limit_label="bound",
        names=("transfer", "bound"),
    )
    texts = (
        f"{human.amount(plan.volume_bytes)} by {plan.path}, in {human.seconds(plan.time_s)} in all; the step stays as "
        f"it is up to {human.seconds(plan.budget_s)}",
        f"the busiest training device sends {human.amount(plan.sent_bytes)}, the fullest rollout device receives "
        f"{human.amount(plan.received_bytes)}",
        f"a training rank sends to at most {plan.peers:,} ranks of a replica, at most {human.amount(plan.pair_bytes)} "
        "to one",
        f"a switch of versions costs {human.seconds(plan.lost_s)} of rollout",
    )
    return (
        Figure("Stages of one version, on the slowest device.", chart),
        Figure("Every weight has to leave once, and every device has to receive what it holds.", bound),
        ListBlock(texts),
    )


def _serving(plan: ServingPlan, told: PoolsExplanation | None) -> tuple[Block, ...]:
    one = told.serving if told is not None else None
    parts = one.memory_bytes if one else {
        f"weights ({plan.weights})": plan.weight_bytes, "cache": plan.cache_bytes, "buffers": plan.buffer_bytes,
    }  # fmt: skip
    memory = Chart(
        name="replica-memory",
        title="HBM of a replica's fullest device",
        kind="stacked",
        told=human.amount,
        bars=(Bar("in use", tuple(parts.items())),),
        limit=plan.limit_bytes,
        limit_label="usable",
    )
    passes = {"decode step": plan.decode_parts_s} | ({"one prompt": one.prefill_parts_s} if one else {})
    charts = [
        Chart(
            name=name.replace(" ", "-"),
            title=f"{name}, part by part",
            kind="waterfall",
            told=lambda value: human.seconds(value, 3),
            bars=(Bar(name, tuple((part, value) for part, value in parts.items() if value > 0.0)),),
        )
        for name, parts in passes.items()
    ]
    texts = [
        f"{human.seconds(plan.token_s)} between two tokens of one request; {human.seconds(plan.prefill_s)} for one "
        "prompt of mean length on a whole replica",
        f"{human.seconds(plan.longest_request_s)} for the longest request of a batch",
    ]
    texts += [f"{LIMITS[one.limited_by]}: {one.reason}"] if one else []
    return (
        Figure("Usable is what context and reserve leave.", memory),
        *(Figure("Parts of one pass over all layers.", chart) for chart in charts),
        ListBlock(tuple(texts)),
    )


def _why_not(answer: TwoPools) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for number, one in enumerate(answer.conflicts, 1):
        blocks.append(TextBlock(f"{number}. These cannot hold together, and without any one of them the others could:"))
        blocks.append(ListBlock(tuple(one.sentences)))
    if answer.relaxations:
        columns = (Column("change"), Column("step", True), Column("pair that then fits"))
        rows = tuple(
            (one.lever, "" if one.step_time_s is None else human.seconds(one.step_time_s), one.mapping)
            for one in answer.relaxations
        )
        blocks.append(Table(columns, rows, "The least changes that help, each searched again"))
    return tuple(blocks)


def _inputs(answer: TwoPools) -> tuple[Block, ...]:
    about = answer.provenance
    names = {kind: str(getattr(about, kind, "")) for kind in about.input_sha256} | {"rollout": answer.rollout}
    rows = tuple((kind, names[kind], digest[:16]) for kind, digest in about.input_sha256.items())
    blocks: list[Block] = [Table((Column("input"), Column("name"), Column("SHA-256")), rows)]
    if about.assumptions:
        blocks += [TextBlock("Assumed or fitted, not measured:"), ListBlock(tuple(about.assumptions))]
    return tuple(blocks)
