"""`mapsearch report`: an answer as one page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.render import write_text
from mapsearch.cli.solved import differing, inputs_for, read_mapping, read_result
from mapsearch.errors import ExitCode, InputError, UsageError, listed

if TYPE_CHECKING:
    from mapsearch.answer import Answer
    from mapsearch.explanation import Explanation
    from mapsearch.front import Front
    from mapsearch.inputs import Inputs
    from mapsearch.inventories.mapping import Mapping
    from mapsearch.reports.dossier import Known
    from mapsearch.reports.exports.report import Section


@click.command("report", short_help="An answer as one page to look at.")
@click.argument("answer", metavar="ANSWER.json[#RANK]")
@options.input_options
@click.option("--front", metavar="FRONT.json", help="The front of `pareto --format json`, drawn with the answer.")
@click.option("--explanation", metavar="EXPLANATION.json", help="Of `explain --format json`, told with the answer.")
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
    figures: str | None,
    figure_format: str,
    output: str,
    **run_options: Any,
) -> int:
    """One HTML file without scripts that needs no network: summary, ranking, time and memory, placement, inputs.

    Charts are drawn from the answer's own numbers; nothing is searched. It prints, and follows a light or dark screen.
    """
    options.check_output(output)
    from mapsearch.reports.dossier import dossier

    known = _known(answer, model, run, topology, profile, front, explanation, run_options)
    write_text(dossier(known), output)
    if figures is not None:
        _write_figures(known, figures, figure_format)
    return ExitCode.FOUND


def _known(
    name: str,
    model: str | None,
    run: str | None,
    topology: str | None,
    profile: str | None,
    front: str | None,
    explanation: str | None,
    run_options: dict[str, Any],
) -> Known:
    """The answer and what belongs to it. Raises InputError."""
    from mapsearch.costs.estimate import point_of
    from mapsearch.inputs import read_for, read_inputs
    from mapsearch.reports.dossier import Known
    from mapsearch.solver.provenance import provenance_of

    found, rank = _answer(name)
    mapping, about = read_mapping(name)
    told = inputs_for(
        about, model=model, run=run, topology=topology, profile=profile, devices=None, run_options=run_options
    )
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
        more=_chapters(name, mapping, inputs),
        front=_front(front) if front else None,
        explanation=_explanation(explanation) if explanation else None,
        documents={named.kind: _document(named.record) for named in inputs.named},
    )


def _chapters(name: str, mapping: Mapping, inputs: Inputs) -> tuple[Section, ...]:
    """The pipeline as it runs, the cluster with its groups, and the contract. Raises InputError."""
    from mapsearch.contracting.api import contract_of
    from mapsearch.placing.api import placement_of, placing_of
    from mapsearch.reports.chapters import contract_section, timeline_section, topology_section
    from mapsearch.timelines import timeline
    from mapsearch.topologies.spec import Topology

    by_kind: dict[str, Any] = {named.kind: named.record for named in inputs.named}
    told = {kind: by_kind[kind] for kind in ("model", "run", "topology", "profile")}
    drawn = timeline(mapping, **{**told, "topology": inputs.facts.fabric})
    sections = [timeline_section(drawn.simulation, drawn.pipeline.timeline)]
    if isinstance(told["topology"], Topology):
        placement = placement_of(placing_of(mapping, told["topology"], name=name))
        sections.append(topology_section(inputs.facts.fabric, placement))
    return (*sections, contract_section(contract_of(mapping, **told, source=name)))


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


def _write_figures(known: Known, folder: str, ending: str) -> None:
    """Every chart as a file. Raises UsageError, BackendMissing."""
    from mapsearch.reports.dossier import charts_of
    from mapsearch.reports.exports.charts import chart_png, chart_svg

    home = Path(folder)
    try:
        home.mkdir(parents=True, exist_ok=True)
        for chart in charts_of(known):
            drawn = chart_png(chart) if ending == "png" else chart_svg(chart, alone=True).encode()
            (home / f"{chart.name}.{ending}").write_bytes(drawn)
    except OSError as problem:
        raise UsageError(f"cannot be written: {problem.strerror}", file=folder, field="--figures") from None
