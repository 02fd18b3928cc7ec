"""`mapsearch solve`: the ranked, proven list of mappings."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.progress import watching
from mapsearch.cli.render import emit
from mapsearch.errors import ExitCode
from mapsearch.interrupts import Interrupts

if TYPE_CHECKING:
    from mapsearch.answer import Answer


@click.command("solve", short_help="Rank the fastest mappings of a model on a cluster, with proof.")
@options.input_options
@options.constraint_options
@options.devices_option
@click.option("--top", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many mappings.")
@options.backend_option("Who proves the ranking.")
@click.option("--proof", type=click.Choice(["auto", "none"]), default="auto", show_default=True, help="Prove, or not.")
@click.option("--certify", is_flag=True, help="Prove by CP-SAT and by MILP, leaning on no bound of the search.")
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
    certify: bool,
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
    # From here to the last written line: Ctrl-C shortens the search, and never cuts an answer in two.
    with Interrupts() as interrupts:
        named_run = run or options.DEFAULT_RUN
        chosen = options.chosen_run(named_run, run_options)
        with watching(quiet=quiet) as progress:
            from mapsearch.api import solve  # numpy and pydantic come with it: the bar is there first

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
                certify=certify,
                progress=progress,
            )
        answer = options.retold(answer, named_run, run_options)
        emit(answer, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
        sys.stdout.flush()
    code = exit_code(answer, require_proof=require_proof, interrupted=interrupts.seen)
    if code is ExitCode.STOPPED and answer.mappings:
        print("mapsearch: the ranking is not proven, and --require-proof asks for it", file=sys.stderr)
    return code


def exit_code(answer: Answer, *, require_proof: bool, interrupted: bool = False) -> ExitCode:
    """The exit code that an answer earns (docs/reference/exit-codes.md)."""
    held = answer.status != "unknown" and bool(answer.mappings)
    code = options.exit_code(answer.status, held=held, interrupted=interrupted or answer.interrupted)
    unproven = answer.status != "optimal" or any(proof.status == "not proven" for proof in answer.proofs)
    return ExitCode.STOPPED if code is ExitCode.FOUND and require_proof and unproven else code
