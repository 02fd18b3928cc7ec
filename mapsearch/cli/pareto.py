"""`mapsearch pareto`: the exact front of step time and other objectives."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.progress import watching
from mapsearch.cli.render import emit, write_plot
from mapsearch.interrupts import Interrupts

if TYPE_CHECKING:
    pass


@click.command("pareto", short_help="The exact front of step time and other objectives.")
@options.input_options
@options.constraint_options
@options.devices_option
@click.option(
    "--objectives",
    default="step_time,peak_memory",
    show_default=True,
    metavar="A,B,...",
    help="step_time and more of peak_memory, devices, exposed_fraction, energy, cost.",
)
@click.option("--certify", is_flag=True, help="Have a solver refute every gap between the points as well.")
@options.backend_option("Who certifies.")
@click.option("--time-limit", type=options.Duration(), help="Stop after so many seconds with the front so far.")
@options.plot_option
@options.output_options
def command(
    *,
    model: str | None,
    run: str | None,
    topology: str | None,
    profile: str | None,
    devices: int | None,
    objectives: str,
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
    """The mappings that no other one beats in some objective and equals in all others, exact over the whole space.

    With the objective devices the space also holds mappings on a part of the cluster. energy and cost need `power` and
    `price_per_hour` in the topology's device. Ctrl-C gives the front so far, and which region is open.
    """
    options.check_output(output)
    options.check_plot(plot)
    with Interrupts() as interrupts:
        named_run = run or options.DEFAULT_RUN
        chosen = options.chosen_run(named_run, run_options)
        with watching(quiet=quiet) as progress:
            from mapsearch.fronts import pareto  # numpy and pydantic come with it: the bar is there first

            front = pareto(
                model or options.DEFAULT_MODEL,
                chosen,
                topology or options.DEFAULT_TOPOLOGY,
                objectives=objectives,
                profile=profile,
                devices=devices,
                time_limit=time_limit,
                certify=certify,
                backend=backend,
                progress=progress,
            )
        front = options.retold(front, named_run, run_options)
        emit(front, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
        sys.stdout.flush()
        if plot is not None and front.points:
            write_plot([front], [front.provenance.topology], plot, quiet=quiet)
    interrupted = interrupts.seen or front.interrupted
    return options.exit_code(front.status, held=bool(front.points), interrupted=interrupted)
