"""`mapsearch reproduce`: solve a locked folder again, and say what has changed."""

from __future__ import annotations

import click

from mapsearch.cli import options
from mapsearch.cli.progress import watching
from mapsearch.cli.render import emit
from mapsearch.errors import ExitCode
from mapsearch.interrupts import Interrupts


@click.command("reproduce", short_help="Solve a locked folder again, and say what has changed.")
@click.argument("folder", metavar="DIR")
@options.output_options
def command(*, folder: str, format_: str | None, output: str | None, quiet: bool, verbose: bool) -> int:
    """Solve a folder of `mapsearch solve -o DIR/` or `mapsearch rollout -o DIR/` again, and say what has changed.

    Every changed field of every document is named with its value before and after, whether it changes the answer or
    not, and every version of mapsearch and of its libraries that differs. Where several changed and the answer is
    another one, each is tried alone with the others as they were. Exit 0 when the answer is the same, 3 when it is
    another one, 4 when the search was stopped before it was known.
    """
    options.check_output(output)
    with Interrupts() as interrupts:
        with watching(quiet=quiet) as progress:
            from mapsearch.reproducing.bundle import read_lock
            from mapsearch.reproducing.repeat import reproduce

            if "rollout" in read_lock(folder).documents:
                from mapsearch.pooling.repeat import reproduce_pools

                found = reproduce_pools(folder, progress=progress)
            else:
                found = reproduce(folder, progress=progress)
        emit(found, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
    if interrupts.seen:
        return ExitCode.INTERRUPTED
    if not found.complete:
        return ExitCode.STOPPED
    return ExitCode.FOUND if found.same else ExitCode.INFEASIBLE
