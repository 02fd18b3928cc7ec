"""`mapsearch explain`: what binds, what rules cost, why nothing fits, and why not another mapping."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.progress import watching
from mapsearch.cli.render import emit
from mapsearch.cli.solved import inputs_for, names_of, read_result, run_options_of, tell_differing
from mapsearch.errors import ExitCode
from mapsearch.interrupts import Interrupts

if TYPE_CHECKING:
    from mapsearch.answer import Answer
    from mapsearch.explanation import Explanation
    from mapsearch.inventories.mapping import Mapping


@click.command("explain", short_help="What binds a mapping, why nothing fits, or why not that one.")
@click.argument("answer", metavar="[ANSWER.json]", required=False)
@options.input_options
@options.constraint_options
@options.devices_option
@click.option("--rank", type=click.IntRange(1, 1000), default=1, show_default=True, help="Which mapping to explain.")
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
    rank: int,
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

    With --why-not: what another mapping breaks and the nearest edit that fits, or what it loses against the fastest
    and the least change of inputs at which it would win. Exit 0 when it fits, 3 when it does not.

    An answer of `mapsearch solve --format json` names the inputs, and --why-not takes its ranking where it is proven
    and the inputs are the same, so that the question takes half the time.
    """
    options.check_output(output)
    with Interrupts() as interrupts:
        known = None if answer is None else _answer(answer)
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


def _answer(name: str) -> Answer:
    from mapsearch.answer import SCHEMA, Answer

    return read_result(Answer, name, SCHEMA, "solve")


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
