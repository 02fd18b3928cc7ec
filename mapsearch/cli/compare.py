"""`mapsearch compare`: answers, or fronts, side by side."""

from __future__ import annotations

import sys

import click

from mapsearch.cli import options
from mapsearch.cli.render import emit, write_plot
from mapsearch.errors import ExitCode, UsageError


@click.command("compare", short_help="Put answers, or fronts, side by side.")
@click.argument("documents", nargs=-1, required=True, metavar="A.json[#RANK] B.json[#RANK]...")
@options.plot_option
@options.output_options
def command(
    *,
    documents: tuple[str, ...],
    plot: str | None,
    format_: str | None,
    output: str | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Compare answers of `solve --format json`, or fronts of `pareto --format json`, with the first of them.

    What differs in the inputs, which mapping moved, and step time and memory part by part: of the best mapping of
    each, or of the one that #RANK names. For fronts also coverage, hypervolume, and where they cross.
    """
    options.check_output(output)
    options.check_plot(plot)
    from mapsearch.comparing import compare, read_document

    read = [read_document(one) for one in documents]
    comparison = compare(*read)
    if plot is not None and comparison.kind == "answers":
        raise UsageError("draws fronts; these are answers", field="--plot")
    emit(comparison, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
    sys.stdout.flush()
    if plot is not None:
        write_plot([one.front for one in read], comparison.names, plot, quiet=quiet)
    return ExitCode.FOUND
