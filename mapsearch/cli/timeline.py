"""`mapsearch timeline`: the pipeline of a mapping, run operation by operation and drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.render import emit_view, write_text
from mapsearch.cli.solved import inputs_for, ranked_name, read_mapping, tell_differing
from mapsearch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from mapsearch.simulating.simulator import OpTimes
    from mapsearch.timelines import Drawn

FORMATS = ("table", "json", "svg", "html")
_EXAMPLE = "write FORWARD,INPUT-GRADIENT,WEIGHT-GRADIENT as '12 ms,16 ms,10 ms', stages apart by '/'"


@click.command("timeline", short_help="Draw the pipeline of a mapping, run operation by operation.")
@click.argument("mapping", metavar="MAPPING.yaml|ANSWER.json[#RANK]")
@options.input_options
@options.devices_option
@click.option("--rank", type=click.IntRange(1, 1000), help="Which mapping of an answer, as #RANK.  [default: 1]")
@click.option(
    "--stage-times",
    metavar="F,B,W[/F,B,W...]",
    help="Times of one microbatch in the place of the mapping's own: '12 ms,16 ms,10 ms' for all stages, or one each.",
)
@click.option("--hop", metavar="TIME", help="Time between devices on top of the stages' own: '20 us'.")
@click.option(
    "--format",
    "-f",
    "format_",
    type=click.Choice(FORMATS),
    help="How to write the result.  [default: by the name of --output, else table]",
)
@options.output_file()
def command(
    *,
    mapping: str,
    model: str | None,
    run: str | None,
    topology: str | None,
    profile: str | None,
    devices: int | None,
    rank: int | None,
    stage_times: str | None,
    hop: str | None,
    format_: str | None,
    output: str | None,
    **run_options: Any,
) -> int:
    """Run the pipeline of a mapping operation by operation, as its schedule orders them, and draw it.

    The mapping is read as `check` reads it, with its model, run and cluster. Every stage takes the forward,
    input-gradient and weight-gradient times that the mapping's estimate has in the steady phase, or those of
    --stage-times. Below the drawing: what each stage computes, waits and holds, and how far the run is from the closed
    form and from the estimated step.
    """
    options.check_output(output)
    named = options.output_format(format_, output)
    shape = named if named in FORMATS else "table"
    times, hop_s = read_stage_times(stage_times), _time(hop, "--hop") if hop is not None else 0.0
    wanted, about = read_mapping(ranked_name(mapping, rank))
    told = inputs_for(
        about, model=model, run=run, topology=topology, profile=profile, devices=devices, run_options=run_options
    )
    from mapsearch.timelines import timeline

    drawn = timeline(
        wanted,
        **told,
        stage_times=times,
        hop_s=hop_s,
    )
    _show(drawn, shape, output)
    tell_differing(about, drawn.simulation.provenance)
    return ExitCode.FOUND


def _show(drawn: Drawn, shape: str, output: str | None) -> None:
    from mapsearch.reports.timeline_svg import timeline_svg
    from mapsearch.reports.timelines import simulation_lines, simulation_page

    simulation, line = drawn.simulation, drawn.pipeline.timeline
    if shape == "table":
        emit_view(lambda width: simulation_lines(simulation, line, width=width), None, format_=shape, output=output)
    elif shape == "svg":
        write_text(timeline_svg(line), output)
    else:
        write_text(simulation.to_json() if shape == "json" else simulation_page(simulation, line), output)


def read_stage_times(written: str | None) -> list[OpTimes]:
    """The times of --stage-times, one entry per stage as written; none when it is not given. Raises UsageError."""
    from mapsearch.simulating.simulator import OpTimes

    found = []
    for stage in written.split("/") if written is not None else ():
        parts = stage.split(",")
        if len(parts) != len(OpTimes._fields):
            raise UsageError(f"{stage.strip()!r} has {len(parts)} times; {_EXAMPLE}", field="--stage-times")
        found.append(OpTimes(*(_time(part, "--stage-times") for part in parts)))
    if found and not all(stage.total_s > 0.0 for stage in found):
        raise UsageError("has a stage that takes no time", field="--stage-times")
    return found


def _time(written: str, option: str) -> float:
    from mapsearch.units import TIME, parse

    try:
        return parse(written.strip(), TIME)
    except ValueError as problem:
        raise UsageError(str(problem), field=option) from None
