"""`mapsearch sensitivity`: the optimum as a function of one input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.progress import watching
from mapsearch.cli.render import emit, write_drawn
from mapsearch.interrupts import Interrupts

if TYPE_CHECKING:
    pass


@click.command("sensitivity", short_help="The optimum as a function of one input, with breakpoints.")
@options.input_options
@options.constraint_options
@options.devices_option
@click.option(
    "--over",
    required=True,
    metavar="INPUT=LOW..HIGH",
    help="hbm=64GB..256GB, exposed_limit=0.05..0.5, bandwidth.LEVEL=25GB/s..200GB/s, capacity_factor=1..2, "
    "devices=512..8192, sequence_length=8192..131072; all but the first two also as a list: devices=512,1024.",
)
@click.option(
    "--points",
    type=int,
    metavar="N",
    help="How many values of a range to solve at first.  [default: 5; devices and lengths: doubled]",
)
@click.option(
    "--tolerance",
    type=float,
    default=0.01,
    show_default=True,
    metavar="SHARE",
    help="Width to which a change of mapping is bracketed.",
)
@click.option("--certify", is_flag=True, help="Have a solver prove every piece as well.")
@options.backend_option("Who certifies.")
@click.option("--time-limit", type=options.Duration(), help="Stop after so many seconds with the pieces so far.")
@options.plot_option
@options.output_options
def command(
    *,
    model: str | None,
    run: str | None,
    topology: str | None,
    profile: str | None,
    devices: int | None,
    over: str,
    points: int | None,
    tolerance: float,
    certify: bool,
    backend: str,
    time_limit: float | None,
    plot: str | None,
    format_: str | None,
    output: str | None,
    quiet: bool,
    verbose: bool,
    **run_options: Any,
) -> int:
    """The fastest mapping as a function of one input, and where it changes.

    hbm and exposed_limit give every breakpoint exactly. bandwidth.LEVEL and capacity_factor are solved at some values
    and refined where the best mapping changes: breakpoints are bracketed. devices and sequence_length are solved value
    by value. Ctrl-C gives the pieces so far.
    """
    options.check_output(output)
    options.check_plot(plot)
    with Interrupts() as interrupts:
        named_run = run or options.DEFAULT_RUN
        chosen = options.chosen_run(named_run, run_options)
        with watching(quiet=quiet) as progress:
            from mapsearch.sensitivities.api import sensitivity  # numpy comes with it: the bar is there first

            result = sensitivity(
                model or options.DEFAULT_MODEL,
                chosen,
                topology or options.DEFAULT_TOPOLOGY,
                over=over,
                profile=profile,
                devices=devices,
                points=points,
                tolerance=tolerance,
                time_limit=time_limit,
                certify=certify,
                backend=backend,
                progress=progress,
            )
        result = options.retold(result, named_run, run_options)
        emit(result, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
        sys.stdout.flush()
        if plot is not None and any(piece.mapping for piece in result.pieces):
            from mapsearch.reports.exports.steps import sensitivity_plot

            write_drawn(sensitivity_plot(result, Path(plot).suffix.lower()), plot, quiet=quiet)
    interrupted = interrupts.seen or result.interrupted
    return options.exit_code(result.status, held=any(piece.mapping for piece in result.pieces), interrupted=interrupted)
