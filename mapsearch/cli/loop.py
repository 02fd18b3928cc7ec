"""`mapsearch loop`: training and rollout side by side: step, queue, staleness, and whether they hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.render import emit, write_text
from mapsearch.errors import ExitCode, InputError

if TYPE_CHECKING:
    from mapsearch.inventories.loop import Loop
    from mapsearch.loop import LoopReport

FORMATS = ("table", "json", "yaml", "csv", "md", "html", "svg")


@click.command("loop", short_help="Training and rollout side by side: step, queue, staleness.")
@click.argument("loop", metavar="LOOP.yaml|POOLS.json")
@click.option(
    "--steps", type=click.IntRange(20, 100_000), metavar="N", help="Training steps to simulate.  [default: 200]"
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Of the simulation's chance.  [default: 0]")
@click.option(
    "--format",
    "-f",
    "format_",
    type=click.Choice(FORMATS),
    help="How to write the result; svg: the charts alone.  [default: by the name of --output, else table]",
)
@options.output_file()
def command(*, loop: str, steps: int | None, seed: int | None, format_: str | None, output: str | None) -> int:
    """Steady state and simulation of asynchronous training: who waits, what queues, how old samples are.

    LOOP.yaml has the trainer (or an answer that it is read from), the rollout pool, the publishing path, the bounds of
    the queue, the staleness budget and the policy for samples over it. The four constraints are judged, the closed
    form stands beside a discrete-event simulation of the same loop, and the policies beside each other.
    POOLS.json is an answer of `mapsearch rollout --format json`: the pair of pools that the search found is simulated,
    and its step held against the search's.
    Exit 3 when the loop is unstable: a queue grows without end, or no sample is ever young enough.
    """
    options.check_output(output)
    from mapsearch import documents
    from mapsearch.pooled import TWO_POOLS_SCHEMA

    data = documents.load(loop)
    if isinstance(data, dict) and data.get("schema") == TWO_POOLS_SCHEMA:
        from mapsearch.pooling.loops import judge_pools

        found = judge_pools(loop, steps=steps or 200, seed=seed or 0)
    else:
        found = _judged(data, loop, steps, seed)
    shape = options.output_format(format_, output)
    if shape in ("html", "svg"):
        from mapsearch.reports.loops import loop_page, loop_svg

        write_text(loop_page(found) if shape == "html" else loop_svg(found), output)
    else:
        emit(found, format_=shape, output=output)
    return ExitCode.INFEASIBLE if found.steady.grows else ExitCode.FOUND


def _judged(data: Any, file: str, steps: int | None, seed: int | None) -> LoopReport:
    """The loop of a file. Raises InputError."""
    from mapsearch.inventories.base import validate
    from mapsearch.inventories.loop import Loop
    from mapsearch.looping.api import facts_of, judge_loop

    spec = validate(Loop, data, file=file)
    step_s, batch_tokens = _of_answer(spec, file)
    try:
        return judge_loop(
            facts_of(spec, train_s=step_s, batch_tokens=batch_tokens),
            name=spec.name,
            steps=steps or spec.run.steps,
            seed=spec.run.seed if seed is None else seed,
            weighted=spec.decay is not None,
            assumptions=_tagged(spec),
        )
    except InputError as problem:
        raise problem.within(file) from None


def _of_answer(spec: Loop, file: str) -> tuple[float | None, float | None]:
    """Step and batch of the answer's mapping, where one is named. Raises InputError."""
    if not spec.training.answer:
        return None, None
    from mapsearch.comparing import read_document

    chosen = read_document(str(Path(file).parent / spec.training.answer)).chosen
    if chosen is None or not hasattr(chosen, "tokens_per_s"):
        raise InputError(
            "holds no mapping whose step could be read", file=spec.training.answer, field="training.answer"
        )
    return chosen.step_time_s, chosen.tokens_per_s * chosen.step_time_s


def _tagged(spec: Loop) -> list[str]:
    """Values with their sources, as they stand in the file."""
    parts = {"training": spec.training, "rollout": spec.rollout, "publish": spec.publish, "queue": spec.queue,
             "budget": spec.budget, "": spec}  # fmt: skip
    return [
        f"loop {spec.name}: {f'{part} {field}'.strip().replace('_', ' ')} ({source})"
        for part, record in parts.items()
        for field, source in sorted(record.sources.items())
    ]
