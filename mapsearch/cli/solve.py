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
    from mapsearch.inventories.run import Run


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
@options.solve_output_options
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

    With -o DIR/ the result is shown, and the folder gets model.yaml, run.yaml, topology.yaml, profile.yaml,
    mapping.yaml (the fastest), answer.json and mapsearch.lock.json: what `mapsearch reproduce DIR` solves again.
    """
    folder = options.folder_of(output)
    _check_output(output, folder)
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
        if folder is not None:
            told = {"devices": devices, "top": top, "backend": backend, "proof": proof}
            more = {"certify": certify, "time_limit": time_limit}
            _write_folder(folder, answer, chosen, profile, {**told, **more}, quiet=quiet)
            output = None
        emit(answer, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
        sys.stdout.flush()
    code = exit_code(answer, require_proof=require_proof, interrupted=interrupts.seen)
    if code is ExitCode.STOPPED and answer.mappings:
        print("mapsearch: the ranking is not proven, and --require-proof asks for it", file=sys.stderr)
    return code


def _check_output(output: str | None, folder: str | None) -> None:
    """Refuse a file or folder that cannot be written before the search. Raises UsageError."""
    if folder is None:
        options.check_output(output)
        return
    options.check_folder(folder)


def _write_folder(
    folder: str, answer: Answer, run: Run, profile: str | None, told: dict[str, Any], *, quiet: bool
) -> None:
    """The folder that `mapsearch reproduce` reads. Raises UsageError."""
    from mapsearch.inputs import read_inputs
    from mapsearch.reproducing.bundle import bundle_files, write_bundle
    from mapsearch.topologies import load_topology

    about = answer.provenance
    inputs = read_inputs(about.model, run, about.topology, profile, told["devices"])
    documents: dict[str, Any] = {named.kind: named.record for named in inputs.named}
    # As it was before it was scaled: the number of devices is an option of the solve.
    documents["topology"] = load_topology(about.topology)
    write_bundle(folder, bundle_files(answer, documents, told))
    if not quiet:
        print(f"written to {folder}", file=sys.stderr)


def exit_code(answer: Answer, *, require_proof: bool, interrupted: bool = False) -> ExitCode:
    """The exit code that an answer earns (docs/reference/exit-codes.md)."""
    held = answer.status != "unknown" and bool(answer.mappings)
    code = options.exit_code(answer.status, held=held, interrupted=interrupted or answer.interrupted)
    unproven = answer.status != "optimal" or any(proof.status == "not proven" for proof in answer.proofs)
    return ExitCode.STOPPED if code is ExitCode.FOUND and require_proof and unproven else code
