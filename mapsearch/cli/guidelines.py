"""`mapsearch guidelines`: rules of thumb, each tried on one model and cluster."""

from __future__ import annotations

import sys
from typing import Any

import click

from mapsearch.cli import options
from mapsearch.cli.progress import watching
from mapsearch.cli.render import emit
from mapsearch.interrupts import Interrupts


@click.command("guidelines", short_help="Rules of thumb on trial: which hold for this model and cluster.")
@options.input_options
@options.constraint_options
@options.devices_option
@click.option("--time-limit", type=options.Duration(), help="Stop after so many seconds with what was tried.")
@options.output_options
def command(
    *,
    model: str | None,
    run: str | None,
    topology: str | None,
    profile: str | None,
    devices: int | None,
    time_limit: float | None,
    format_: str | None,
    output: str | None,
    quiet: bool,
    verbose: bool,
    **run_options: Any,
) -> int:
    """Megatron Core's advice for MoE training as hypotheses: the fastest mapping that follows each, and that does not.

    Each rule is searched with and without it: it holds, or it does not (by how much, and the mapping that shows it),
    or its premise is not given here. Exit 0 also when none holds, 3 when nothing fits at all.
    """
    options.check_output(output)
    with Interrupts() as interrupts:
        named_run = run or options.DEFAULT_RUN
        chosen = options.chosen_run(named_run, run_options)
        with watching(quiet=quiet) as progress:
            from mapsearch.hypotheses.api import guidelines  # numpy comes with it: the bar is there first

            found = guidelines(
                model or options.DEFAULT_MODEL,
                chosen,
                topology or options.DEFAULT_TOPOLOGY,
                profile=profile,
                devices=devices,
                time_limit=time_limit,
                progress=progress,
            )
        found = options.retold(found, named_run, run_options)
        emit(found, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
        sys.stdout.flush()
    interrupted = interrupts.seen or found.interrupted
    return options.exit_code(found.status, held=found.mapping is not None, interrupted=interrupted)
