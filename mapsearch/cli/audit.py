"""`mapsearch audit`: all collectives of a mapping routed on the graph of its cluster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

import click

from mapsearch.cli import options
from mapsearch.cli.progress import watching
from mapsearch.cli.render import emit
from mapsearch.cli.solved import inputs_for, notes_of, read_mapping, read_result, tell_differing
from mapsearch.errors import ExitCode, UsageError
from mapsearch.interrupts import Interrupts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mapsearch.placement import Placement


@click.command("audit", short_help="Route a mapping's collectives on the graph of the cluster.")
@click.argument("mapping", metavar="ANSWER.json[#RANK]|MAPPING.yaml")
@options.input_options
@options.devices_option
@click.option(
    "--placement",
    type=click.Path(),
    metavar="FILE.json",
    help="Ranks on devices as `mapsearch placement --format json` wrote them.",
)
@click.option("--feed-back", is_flag=True, help="Search again with what was found, until nothing changes.")
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=8, show_default=True, help="Most searches of --feed-back."
)
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="Share by which a bandwidth may differ before it counts.",
)
@click.option(
    "--contended",
    is_flag=True,
    help="Background traffic takes its half of links that it shares with what stands in line, as without priorities.",
)
@click.option(
    "--measured",
    multiple=True,
    metavar="AXIS=RATE",
    help="Bus bandwidth that a benchmark gave for an axis' groups, such as ep=47.7GB/s; repeat for others.",
)
@click.option(
    "--relay/--no-relay",
    default=True,
    show_default=True,
    help="Devices pass on what a neighbour sends to another rail (NCCL's PXN).",
)
@click.option(
    "--rings",
    type=click.Choice(["levels", "flat"]),
    help="Gathers level by level, or in rings through the group, as NCCL has them.  [default: as the profile says]",
)
@options.output_options
def command(
    *,
    mapping: str,
    model: str | None,
    run: str | None,
    topology: str | None,
    profile: str | None,
    devices: int | None,
    placement: str | None,
    feed_back: bool,
    rounds: int,
    tolerance: float,
    contended: bool,
    measured: tuple[str, ...],
    relay: bool,
    rings: Literal["levels", "flat"] | None,
    format_: str | None,
    output: str | None,
    quiet: bool,
    verbose: bool,
    **run_options: Any,
) -> int:
    """Route all groups' collectives of a step at once, and compare with the bandwidths that the search assumed.

    The mapping is one of an answer that `solve --format json` wrote (`answer.json#2` is its second), which also says
    for which inputs and options, or a YAML file. For each axis: bandwidth by the level model and on the graph, one
    group alone and all at once, the worst link; then which axes meet on a link, and the busiest links of a step. On
    graphs of up to 256 devices a discrete-event check stands beside it.

    With --feed-back what differs by more than the tolerance is given to the search, and its mapping is audited, until
    an audit tells nothing new. Exit 0 whatever the audit finds.
    """  # fmt: skip
    options.check_output(output)
    with Interrupts() as interrupts:
        wanted, about = read_mapping(mapping)
        told = inputs_for(
            about, model=model, run=run, topology=topology, profile=profile, devices=devices, run_options=run_options
        )
        seats = None if placement is None else read_placement(placement)
        with watching(quiet=quiet or not feed_back) as progress:
            from mapsearch.auditing.api import audit  # numpy comes with it: the bar is there first

            found = audit(
                wanted,
                **told,
                relay=relay,
                rings=rings,
                placement=seats,
                answer_notes=notes_of(mapping),
                tolerance=tolerance,
                contended=contended,
                measured=rates_of(measured),
                feed_back=feed_back,
                rounds=rounds,
                progress=progress,
            )
        emit(found, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
        sys.stdout.flush()
    tell_differing(about, found.provenance, quiet=quiet)
    return ExitCode.INTERRUPTED if interrupts.seen else ExitCode.FOUND


def rates_of(given: Sequence[str]) -> dict[str, float]:
    """Bytes/s by axis from `ep=47.7GB/s`. Raises UsageError."""
    from mapsearch.units import RATE, parse

    found: dict[str, float] = {}
    for word in given:
        axis, mark, rate = word.partition("=")
        try:
            if not mark:
                raise ValueError("write it as AXIS=RATE, such as ep=47.7GB/s")
            found[axis.strip().lower()] = parse(rate, RATE)
        except ValueError as problem:
            raise UsageError(f"{word!r}: {problem}", field="--measured") from None
    return found


def read_placement(name: str) -> Placement:
    """Ranks on devices from a file. Raises InputError."""
    from mapsearch.placement import PLACEMENT_SCHEMA, Placement

    return read_result(Placement, name, PLACEMENT_SCHEMA, "placement")
