"""`mapsearch solve`: the ranked, proven list of mappings."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.interrupts import Interrupts
from mapsearch.cli.progress import watching
from mapsearch.cli.render import emit
from mapsearch.errors import ExitCode

if TYPE_CHECKING:
    from mapsearch.answer import Answer


@click.command("solve", short_help="Rank the fastest mappings of a model on a cluster, with proof.")
@options.input_options
@options.constraint_options
@click.option("--devices", type=click.IntRange(1, 2**31), metavar="N", help="A cluster of this kind with N devices.")
@click.option("--top", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many mappings.")
@click.option(
    "--backend",
    type=click.Choice(["auto", "exhaustive", "cpsat", "milp"]),
    default="auto",
    show_default=True,
    help="Who proves the ranking.",
)
@click.option("--proof", type=click.Choice(["auto", "none"]), default="auto", show_default=True, help="Prove, or not.")
@click.option("--time-limit", type=options.Duration(), help="Stop after so many seconds with the best so far.")
@click.option("--require-proof", is_flag=True, help="Exit 4 when the ranking is not proven.")
@options.output_options
def command(
    *,
    model: str | None,
    run: str | None,
    topology: str | None,
    profile: str | None,
    devices: int | None,
    top: int,
    backend: str,
    proof: str,
    time_limit: float | None,
    require_proof: bool,
    format_: str | None,
    output: str | None,
    quiet: bool,
    verbose: bool,
    **run_options: Any,
) -> int:
    """Rank the fastest mappings of a model on a cluster, with proof.

    Each input is the name of a built-in document or a YAML file. Ctrl-C gives the best mappings so far with their
    gap. The result goes to stdout, progress to stderr.
    """
    options.check_output(output)
    chosen = options.read_run(
        run or options.DEFAULT_RUN,
        overrides={name: run_options[name] for name in options.OVERRIDES},
        constraints={name: run_options[name] for name in options.CONSTRAINTS},
    )
    from mapsearch.api import solve

    with Interrupts() as interrupts, watching(quiet=quiet) as progress:
        answer = solve(
            model or options.DEFAULT_MODEL,
            chosen,
            topology or options.DEFAULT_TOPOLOGY,
            profile=profile,
            devices=devices,
            top=top,
            backend=backend,
            time_limit=time_limit,
            require_proof=require_proof,
            proof=proof,
            progress=progress,
        )
    emit(answer, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
    code = exit_code(answer, require_proof=require_proof, interrupted=interrupts.seen)
    if code is ExitCode.STOPPED and answer.mappings:
        print("mapsearch: the ranking is not proven, and --require-proof asks for it", file=sys.stderr)
    return code


def exit_code(answer: Answer, *, require_proof: bool, interrupted: bool = False) -> ExitCode:
    """The exit code that an answer earns (docs/reference/exit-codes.md)."""
    if interrupted or answer.interrupted:
        return ExitCode.INTERRUPTED
    if answer.status == "infeasible":
        return ExitCode.INFEASIBLE
    if answer.status == "unknown" or not answer.mappings:
        return ExitCode.STOPPED
    if require_proof and answer.status != "optimal":
        return ExitCode.STOPPED
    return ExitCode.FOUND
