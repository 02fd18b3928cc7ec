"""`mapsearch report`: an answer as one page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.render import write_text
from mapsearch.cli.solved import TWO_POOLS, differing, inputs_for, read_mapping, read_result, schema_of, two_pools
from mapsearch.errors import ExitCode, InputError, UsageError, listed

if TYPE_CHECKING:
    from mapsearch.answer import Answer
    from mapsearch.contracting.case import Pool
    from mapsearch.explanation import Explanation
    from mapsearch.front import Front
    from mapsearch.inputs import Inputs
    from mapsearch.inventories.mapping import Mapping
    from mapsearch.loop import LoopReport
    from mapsearch.pooled import TwoPools
    from mapsearch.reports.dossier import Known, Page
    from mapsearch.reports.exports.report import Section

STEPS = 100
"""Training steps of a pair that are simulated for its page."""


@click.command("report", short_help="An answer as one page to look at.")
@click.argument("answer", metavar="ANSWER.json[#RANK]|LOOP.json|LOAD.json")
@options.input_options
@click.option("--front", metavar="FRONT.json", help="The front of `pareto --format json`, drawn with the answer.")
@click.option("--explanation", metavar="EXPLANATION.json", help="Of `explain --format json`, told with the answer.")
@click.option("--loop", metavar="LOOP.json", help="Of `loop --format json`: another simulation of an answer about two "
              "pools.  [default: 100 steps]")  # fmt: skip
@click.option("--experts", metavar="LOAD.json", help="Of `experts --format json`: router load, with an answer about "
              "two pools.")  # fmt: skip
@click.option("--figures", metavar="DIR", help="Also write every figure as a file of its own.")
@click.option(
    "--figure-format", type=click.Choice(("svg", "png")), default="svg", show_default=True, help="Of those files."
)
@click.option("--output", "-o", metavar="FILE", default="report.html", show_default=True, help="Where to write it.")
def command(
    *,
    answer: str,
    model: str | None,
    run: str | None,
    topology: str | None,
    profile: str | None,
    front: str | None,
    explanation: str | None,
    loop: str | None,
    experts: str | None,
    figures: str | None,
    figure_format: str,
    output: str,
    **run_options: Any,
) -> int:
    """One HTML file without scripts that needs no network: summary, ranking, time and memory, placement, inputs.

    Of an answer of `mapsearch rollout`: who has which devices, what sets the step, publishing, a replica, queue and
    staleness over time, and the training side as ever. Results of `mapsearch loop` and `mapsearch experts` make pages
    of their own.

    Charts are drawn from the answer's own numbers; nothing is searched. It prints, and follows a light or dark screen.
    """
    options.check_output(output)
    asked = {"model": model, "run": run, "topology": topology, "profile": profile}
    beside = {"--front": front, "--explanation": explanation, "--loop": loop, "--experts": experts}
    page = _page(answer, asked, beside, run_options)
    write_text(page.html(), output)
    if figures is not None:
        _write_figures(page, figures, figure_format)
    return ExitCode.FOUND


def _page(name: str, asked: dict[str, Any], beside: dict[str, str | None], run_options: dict[str, Any]) -> Page:
    """The page of whatever a file holds. Raises InputError, and UsageError for what does not go with it."""
    from mapsearch.expert_load import EXPERT_LOAD_SCHEMA, ExpertLoad
    from mapsearch.loop import LOOP_SCHEMA, LoopReport

    schema = schema_of(name)
    if schema == LOOP_SCHEMA:
        from mapsearch.reports.loop_pages import loop_report

        _refuse(beside, (), "a loop")
        return loop_report(read_result(LoopReport, name, LOOP_SCHEMA, "loop"))
    if schema == EXPERT_LOAD_SCHEMA:
        from mapsearch.reports.load_pages import load_report

        _refuse(beside, (), "router load")
        return load_report(read_result(ExpertLoad, name, EXPERT_LOAD_SCHEMA, "experts"))
    if schema == TWO_POOLS:
        _refuse(beside, ("--explanation", "--loop", "--experts"), "an answer about two pools")
        return _pools(name, asked, beside, run_options)
    from mapsearch.reports.dossier import dossier

    _refuse(beside, ("--front", "--explanation"), "an answer of solve")
    found, rank = _answer(name)
    return dossier(_known(name, found, rank, asked, beside, run_options))


def _refuse(beside: dict[str, str | None], accepted: tuple[str, ...], what: str) -> None:
    wrong = next((option for option, value in beside.items() if value and option not in accepted), None)
    if wrong is not None:
        with_it = f"; accepted: {listed(accepted)}" if accepted else ""
        raise UsageError(f"does not go with {what}{with_it}", field=wrong)


def _pools(name: str, asked: dict[str, Any], beside: dict[str, str | None], run_options: dict[str, Any]) -> Page:
    """Both pools, and the training side as ever. Raises InputError."""
    from mapsearch.expert_load import EXPERT_LOAD_SCHEMA, ExpertLoad
    from mapsearch.loop import LOOP_SCHEMA, LoopReport
    from mapsearch.pooling.answers import rollout_of
    from mapsearch.pooling.contracts import pool_of
    from mapsearch.pools_explained import POOLS_EXPLANATION_SCHEMA, PoolsExplanation
    from mapsearch.reports.dossier import dossier
    from mapsearch.reports.pool_pages import PoolsKnown, pools_dossier

    found = two_pools(name)
    loop, experts, explanation = (beside[option] for option in ("--loop", "--experts", "--explanation"))
    told = None
    if explanation:
        told = read_result(PoolsExplanation, explanation, POOLS_EXPLANATION_SCHEMA, "explain")
        if told.pools != found:
            raise InputError("explains another answer than this one; explain it again", file=explanation)
    known = PoolsKnown(
        answer=found,
        loop=read_result(LoopReport, loop, LOOP_SCHEMA, "loop") if loop else _simulated(name, found),
        load=read_result(ExpertLoad, experts, EXPERT_LOAD_SCHEMA, "experts") if experts else None,
        explanation=told,
    )
    training = None
    if found.training is not None and found.training.best is not None:
        without: dict[str, str | None] = dict.fromkeys(beside)
        pool = pool_of(found, rollout_of(found))
        training = dossier(_known(name, found.training, 1, asked, without, run_options, pool))
    return pools_dossier(known, training)


def _simulated(name: str, found: TwoPools) -> LoopReport | None:
    """The pair of an answer as a loop; None without a pair."""
    from mapsearch.pooling.loops import judge_pools

    return None if found.mapping is None else judge_pools(name, steps=STEPS)


def _known(
    name: str,
    found: Answer,
    rank: int,
    asked: dict[str, Any],
    beside: dict[str, str | None],
    run_options: dict[str, Any],
    pool: Pool | None = None,
) -> Known:
    """The answer and what belongs to it. Raises InputError."""
    from mapsearch.costs.estimate import point_of
    from mapsearch.inputs import read_for, read_inputs
    from mapsearch.reports.dossier import Known
    from mapsearch.solver.provenance import provenance_of

    mapping, about = read_mapping(name)
    told = inputs_for(about, **asked, devices=None, run_options=run_options)
    front, explanation = beside["--front"], beside["--explanation"]
    inputs = read_for(read_inputs(**told), mapping, found.notes)
    other = differing(about, provenance_of(inputs.named, inputs.devices))
    if other:
        raise InputError(
            f"was solved for another {listed(other)} than is read now; give the inputs as they were, or solve again",
            file=name,
        )
    return Known(
        answer=found,
        mapping=next(one for one in found.mappings if one.rank == rank),
        point=point_of(mapping, inputs.facts),
        more=_chapters(name, mapping, inputs, pool),
        front=_front(front) if front else None,
        explanation=_explanation(explanation) if explanation else None,
        documents={named.kind: _document(named.record) for named in inputs.named},
    )


def _chapters(name: str, mapping: Mapping, inputs: Inputs, pool: Pool | None) -> tuple[Section, ...]:
    """The pipeline as it runs, the cluster with its groups, and the contract. Raises InputError."""
    from mapsearch.contracting.api import contract_of
    from mapsearch.placing.api import placement_of, placing_of
    from mapsearch.reports.chapters import contract_section, timeline_section, topology_section
    from mapsearch.reports.exports.report import Section, TextBlock
    from mapsearch.timelines import timeline
    from mapsearch.topologies.spec import Topology

    by_kind: dict[str, Any] = {named.kind: named.record for named in inputs.named}
    told = {kind: by_kind[kind] for kind in ("model", "run", "topology", "profile")}
    try:
        drawn = timeline(mapping, **{**told, "topology": inputs.facts.fabric})
        sections = [timeline_section(drawn.simulation, drawn.pipeline.timeline)]
    except InputError as problem:  # a schedule whose order is not defined for so many microbatches
        sections = [Section("timeline", "The pipeline as it runs", (TextBlock(f"Not drawn: {problem}."),))]
    if isinstance(told["topology"], Topology):
        placement = placement_of(placing_of(mapping, told["topology"], name=name))
        sections.append(topology_section(inputs.facts.fabric, placement))
    return (*sections, contract_section(contract_of(mapping, **told, source=name, pool=pool)))


def _document(record: Any) -> str:
    from mapsearch import documents

    if not hasattr(record, "model_dump"):
        return str(record)
    return documents.dump(record.model_dump(mode="json", exclude_defaults=True))


def _answer(name: str) -> tuple[Answer, int]:
    """The answer of a file, and the rank asked for. Raises InputError."""
    from mapsearch.answer import Answer
    from mapsearch.comparing import read_document

    read = read_document(name)
    if not isinstance(read.content, Answer):
        raise InputError("is a front; a report is made of an answer, and --front shows a front with it", file=name)
    chosen = read.chosen
    if chosen is None:
        raise InputError(f"holds no mapping (status {read.content.status}); explain says why", file=name)
    return read.content, chosen.rank


def _front(name: str) -> Front:
    from mapsearch.comparing import read_document
    from mapsearch.front import Front

    read = read_document(name).content
    if not isinstance(read, Front):
        raise InputError("is an answer and no front", file=name)
    return read


def _explanation(name: str) -> Explanation:
    from mapsearch.explanation import EXPLANATION_SCHEMA, Explanation

    return read_result(Explanation, name, EXPLANATION_SCHEMA, "explain")


def _write_figures(page: Page, folder: str, ending: str) -> None:
    """Every chart as a file. Raises UsageError, BackendMissing."""
    from mapsearch.reports.dossier import charts_of
    from mapsearch.reports.exports.charts import chart_png, chart_svg

    home = Path(folder)
    try:
        home.mkdir(parents=True, exist_ok=True)
        for chart in charts_of(page.sections):
            drawn = chart_png(chart) if ending == "png" else chart_svg(chart, alone=True).encode()
            (home / f"{chart.name}.{ending}").write_bytes(drawn)
    except OSError as problem:
        raise UsageError(f"cannot be written: {problem.strerror}", file=folder, field="--figures") from None
