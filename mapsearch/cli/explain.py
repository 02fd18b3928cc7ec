"""`mapsearch explain`: what binds, what rules cost, why nothing fits, and why not another mapping."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.progress import watching
from mapsearch.cli.render import emit
from mapsearch.cli.solved import (
    TWO_POOLS,
    inputs_for,
    names_of,
    ranked_name,
    read_result,
    run_options_of,
    schema_of,
    tell_differing,
    two_pools,
)
from mapsearch.errors import ExitCode, InputError, UsageError
from mapsearch.interrupts import Interrupts

if TYPE_CHECKING:
    from mapsearch.answer import Answer
    from mapsearch.explanation import Explanation
    from mapsearch.inventories.mapping import Mapping


@click.command("explain", short_help="What binds a mapping, why nothing fits, or why not that one.")
@click.argument("answer", metavar="[ANSWER.json[#RANK]]", required=False)
@options.input_options
@options.constraint_options
@options.devices_option
@click.option("--rank", type=click.IntRange(1, 1000), metavar="N", help="Which mapping to explain.  [default: 1]")
@click.option(
    "--why-not",
    metavar="MAPPING.yaml|AXIS=VALUE,...",
    help="Why this mapping is not the answer: a file, answer.json#RANK, or some axes as tp=8,ep=64.",
)
@click.option("--stability", is_flag=True, help="Also find how far each bandwidth may fall before the rank is lost.")
@click.option("--holes", is_flag=True, help="Also find what each thing that is down costs: tokens/s with it repaired.")
@click.option("--bindings", type=click.IntRange(1, 100), default=3, show_default=True, help="How many relaxations.")
@click.option("--conflicts", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many conflicts.")
@click.option(
    "--weights",
    metavar="NAME=WEIGHT,...",
    help="Where nothing fits: what a doubling or halving costs, as hbm=1,devices=2,sequence_length=5.",
)
@click.option("--time-limit", type=options.Duration(), help="Stop after so many seconds with what was found.")
@options.output_options
def command(
    *,
    answer: str | None,
    model: str | None,
    run: str | None,
    topology: str | None,
    profile: str | None,
    devices: int | None,
    rank: int | None,
    why_not: str | None,
    stability: bool,
    holes: bool,
    bindings: int,
    conflicts: int,
    weights: str | None,
    time_limit: float | None,
    format_: str | None,
    output: str | None,
    quiet: bool,
    verbose: bool,
    **run_options: Any,
) -> int:
    """What binds the fastest mapping and what relaxing it would gain; or why nothing fits and the least change.

    An answer names its own inputs, and options win over them. An answer of `mapsearch rollout` is explained on both
    sides: training by itself, what limits the replicas, the four constraints between the pools, and the least change
    of each input that shortens the step, both mappings searched again.

    With --why-not: what another mapping breaks and the nearest edit that fits, or what it loses against the fastest
    and the least change of inputs at which it would win. Exit 0 when it fits, 3 when it does not.

    An answer of `mapsearch solve --format json` names the inputs, and --why-not takes its ranking where it is proven
    and the inputs are the same, so that the question takes half the time.
    """
    options.check_output(output)
    if answer is not None and schema_of(answer) == TWO_POOLS:
        given = {"model": model, "run": run, "topology": topology, "profile": profile, "devices": devices}
        refused = {"--why-not": why_not, "--holes": holes, "--weights": weights, **_changed(run_options)}
        return _pools(
            ranked_name(answer, rank), given, refused, bindings=bindings, conflicts=conflicts, stable=stability,
            time_limit=time_limit, shape=(format_, output, quiet, verbose),
        )  # fmt: skip
    with Interrupts() as interrupts:
        known, rank = (None, rank or 1) if answer is None else _answer(answer, rank)
        about = known.provenance if known else None
        told = inputs_for(
            about, model=model, run=run, topology=topology, profile=profile, devices=devices, run_options=run_options
        )
        with watching(quiet=quiet) as progress:
            # numpy comes with them: the bar is there first
            from mapsearch.explaining.api import explain
            from mapsearch.solver.explain.joint import read_weights

            found = explain(
                **told,
                rank=rank,
                why_not=None if why_not is None else _wish(why_not),
                answer=known,
                stable=stability,
                holes=holes,
                bindings=bindings,
                conflicts=conflicts,
                weights=None if weights is None else read_weights(weights),
                time_limit=time_limit,
                progress=progress,
            )
        named = run or names_of(about).get("run") or options.DEFAULT_RUN
        found = options.retold(found, named, run_options_of(about, run, run_options))
        emit(found, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
        tell_differing(about, found.provenance, quiet=quiet)
        sys.stdout.flush()
    return exit_code(found, interrupted=interrupts.seen)


def _changed(run_options: dict[str, Any]) -> dict[str, Any]:
    """Options of the run that were given, as they are written."""
    return {f"--{name.replace('_', '-')}": value for name, value in run_options.items()}


def _answer(answer: str, rank: int | None) -> tuple[Answer, int]:
    """An answer of `solve`, and the rank that is asked about. Raises InputError."""
    from mapsearch.answer import SCHEMA, Answer

    path, mark, written = answer.rpartition("#") if "#" in answer else (answer, "", "")
    if mark and not (written.isdigit() and int(written) > 0):
        raise InputError(f"the rank after # is a whole number from 1 on, not {written!r}", file=path)
    ranked_name(answer, rank)
    return read_result(Answer, path, SCHEMA, "solve"), rank or int(written or 1)


def _pools(
    name: str,
    given: dict[str, Any],
    refused: dict[str, Any],
    *,
    bindings: int,
    conflicts: int,
    stable: bool,
    time_limit: float | None,
    shape: tuple[str | None, str | None, bool, bool],
) -> int:
    """An answer about two pools, explained. Raises UsageError for an option that asks about training alone."""
    wrong = next((option for option, value in refused.items() if value), None)
    if wrong is not None:
        raise UsageError(
            "asks about training alone; give it with the inputs and --devices of the training side", field=wrong
        )
    format_, output, quiet, verbose = shape
    with Interrupts() as interrupts:
        with watching(quiet=quiet) as progress:
            from mapsearch.pooling.answers import pools_of
            from mapsearch.pooling.explain import explain_pools

            answer = two_pools(name)
            pools = pools_of(answer, **given)
            found = explain_pools(
                answer, pools, file=name, bindings=bindings, conflicts=conflicts, stable=stable, time_limit=time_limit,
                progress=progress,
            )  # fmt: skip
        emit(found, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
        tell_differing(answer.provenance, found.provenance, quiet=quiet)
        sys.stdout.flush()
    return options.exit_code(
        found.status, held=answer.mapping is not None, interrupted=interrupts.seen or found.interrupted
    )


def _wish(given: str) -> str | Mapping:
    """A file's mapping, or the axes as written."""
    from mapsearch.cli.solved import read_mapping
    from mapsearch.explaining.wishes import is_file

    return read_mapping(given)[0] if is_file(given) else given


def exit_code(found: Explanation, *, interrupted: bool) -> ExitCode:
    """The exit code of an explanation: that of what was asked about."""
    status = found.status
    if found.why_not is not None:
        status = "infeasible" if found.why_not.mapping is None else "exact"
    held = found.mapping is not None or found.why_not is not None
    return options.exit_code(status, held=held, interrupted=interrupted or found.interrupted)
