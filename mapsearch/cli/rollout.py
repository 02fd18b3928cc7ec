"""`mapsearch rollout`: training and rollout on two pools, and manifests of published versions."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.progress import watching
from mapsearch.cli.render import emit_view, write_drawn, write_text
from mapsearch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from mapsearch.progress import Progress

FORMATS = ("table", "json", "yaml")
PICTURES = (".html", ".svg", ".png")
MOST_VERSIONS = 10_000
PRICE = click.FloatRange(min=0.0, min_open=True)
_INVENTORIES = "mapsearch.inventories"


@click.group("rollout", short_help="Training and rollout on two pools, in one search.", invoke_without_command=True)
@click.option("--model", "-m", type=options.CatalogueName(_INVENTORIES, "models"), default="moe-5t", show_default=True,
              help="Model.")  # fmt: skip
@click.option("--training", "--run", "-r", "run", type=options.CatalogueName(_INVENTORIES, "runs"),
              default="long-context-128k", show_default=True, help="Training side: a run.")  # fmt: skip
@click.option("--rollout", type=options.CatalogueName(_INVENTORIES, "rollouts"), default="default", show_default=True,
              help="Rollout side: lengths, serving, publishing.")  # fmt: skip
@click.option("--topology", "-t", type=options.CatalogueName("mapsearch.topologies"), default="asic", show_default=True,
              help="Cluster: split into both pools, unless the rollout names its own.")  # fmt: skip
@click.option("--profile", "-p", type=options.CatalogueName(_INVENTORIES, "profiles"),
              help="Efficiencies.  [default: the built-in profile that names the topology's device]")  # fmt: skip
@options.devices_option
@click.option("--objective", type=click.Choice(["tokens", "cost", "device-hours"]), default="tokens", show_default=True,
              help="Most RL tokens per second, or least price or device-hours per token.")  # fmt: skip
@click.option("--training-price", type=PRICE, metavar="PRICE",
              help="Of a training device per hour.  [default: price_per_hour of the topology's device]")  # fmt: skip
@click.option("--rollout-price", type=PRICE, metavar="PRICE",
              help="Of a rollout device per hour.  [default: pool.price_per_hour, else its device's]")  # fmt: skip
@click.option("--time-limit", type=options.Duration(), help="Stop after so many seconds with the best so far.")
@click.option("--proof", type=click.Choice(["auto", "none"]), default="auto", show_default=True,
              help="Prove the training mapping by a solver as well.")  # fmt: skip
@click.option("--pareto", is_flag=True, help="The best for every number of versions that a sample may be old.")
@click.option(
    "--versions", metavar="A..B|A,B,...", help="Numbers of versions of --pareto.  [default: until more gain nothing]"
)
@click.option(
    "--queue",
    metavar="A,B,...",
    help="Batches held in the queue of --pareto, a line for each.  [default: the rollout's]",
)
@options.view_format(*FORMATS)
@options.output_file(
    "Write to FILE instead of the screen; DIR/: inputs, mapping, answer and a lock file; with --pareto FILE.html, .svg "
    "or .png is a chart.",
    "FILE|DIR/",
)
@options.plot_option
@click.option("--verbose", "-v", is_flag=True, help="Every division of the devices; every placement of --pareto.")
@click.pass_context
def command(
    ctx: click.Context,
    *,
    model: str,
    run: str,
    rollout: str,
    topology: str,
    profile: str | None,
    devices: int | None,
    objective: str,
    training_price: float | None,
    rollout_price: float | None,
    time_limit: float | None,
    proof: str,
    pareto: bool,
    versions: str | None,
    queue: str | None,
    format_: str,
    output: str | None,
    plot: str | None,
    verbose: bool,
) -> int | None:
    """Find the training mapping, the way to serve and the division of the devices with the most RL tokens per second.

    A step is the longest of training, supply of one batch, what keeps samples within the allowed versions, and
    publishing; the answer names the constraint that binds. Divisions are whole outer units of the cluster, of which
    some may stay unused. With --objective cost or device-hours the least per token is looked for instead. Ctrl-C gives
    the best so far with its gap.

    With -o DIR/ the result is shown, and the folder gets every input, the training mapping, the answer and a lock file,
    for `mapsearch reproduce`.

    --pareto trades staleness for throughput or cost: the proven best for each number of versions, in one search.
    """
    if ctx.invoked_subcommand is not None:
        return None
    folder = None if pareto else options.folder_of(output)
    if folder is None:
        options.check_output(output)
    else:
        options.check_folder(folder)
    asked: dict[str, Any] = {
        "model": model, "run": run, "topology": topology, "rollout": rollout, "profile": profile, "devices": devices,
        "objective": objective, "training_price": training_price, "rollout_price": rollout_price,
        "time_limit": time_limit,
    }  # fmt: skip
    if pareto:
        listed = {"versions": read_versions(versions), "queue": read_queue(queue)}
        return _front({**asked, **listed}, format_, output, plot, verbose=verbose)
    for name, given in (("versions", versions), ("queue", queue), ("plot", plot)):
        if given is not None:
            raise UsageError("belongs to the front; add --pareto", field=f"--{name}")
    with watching(quiet=False) as progress:
        from mapsearch.pooling.api import rollout as solve_pools

        found = solve_pools(**asked, proof=proof, told=_telling(progress))
    if folder is not None:
        from mapsearch.pooling.repeat import pool_files
        from mapsearch.reproducing.bundle import write_bundle

        names = ("devices", "objective", "training_price", "rollout_price", "time_limit")
        told = {name: asked[name] for name in names} | {"proof": proof}
        write_bundle(folder, pool_files(found, profile, told))
        print(f"written to {folder}", file=sys.stderr)
        output = None
    from mapsearch.reports.pools import pool_lines

    data = found.model_dump(mode="json", by_alias=True) if format_ != "table" else None
    emit_view(lambda width: pool_lines(found, width=width, verbose=verbose), data, format_=format_, output=output)
    return options.exit_code(found.status, held=found.mapping is not None, interrupted=found.interrupted)


def _telling(progress: Callable[[Progress], None] | None) -> Callable[[int, int, float], None] | None:
    """What tells the live line how many divisions are done, when somebody watches."""
    if progress is None:
        return None
    from mapsearch.progress import Progress

    def tell(done: int, count: int, best_s: float) -> None:
        progress(Progress("divisions", done, count, best_s if math.isfinite(best_s) else None))

    return tell


def _front(asked: dict[str, Any], format_: str, output: str | None, plot: str | None, *, verbose: bool) -> int:
    """The front as a table or document, and as a chart."""
    ending = Path(output).suffix.lower() if output is not None else ""
    chart = output if ending in PICTURES and format_ == "table" else plot
    options.check_plot(chart)
    options.check_plot(plot)
    with watching(quiet=False) as progress:
        from mapsearch.pooling.front import rollout_front
        from mapsearch.progress import Progress

        def tell(points: int, done: int, count: int, step_s: float) -> None:
            if progress is not None:
                best_s = step_s if math.isfinite(step_s) else None
                progress(Progress(f"point {points + 1}, divisions", done, count, best_s))

        found = rollout_front(**asked, told=tell)
    held = any(point.steady is not None for point in found.points)
    if chart is None or chart != output:
        from mapsearch.reports.pool_fronts import pool_front_lines

        data = found.model_dump(mode="json", by_alias=True) if format_ != "table" else None
        lines = lambda width: pool_front_lines(found, width=width, verbose=verbose)  # noqa: E731
        emit_view(lines, data, format_=format_, output=output)
    for file in dict.fromkeys(name for name in (chart, plot) if name is not None and held):
        from mapsearch.reports.exports.pool_plots import pool_plot_bytes

        sys.stdout.flush()
        write_drawn(pool_plot_bytes(found, Path(file).suffix.lower()), file)
    return options.exit_code(found.status, held=held, interrupted=found.interrupted)


def read_versions(written: str | None) -> list[int] | None:
    """Numbers of versions: `1..8`, or `1,2,4`. Raises UsageError."""
    if written is None:
        return None
    low, dots, high = written.partition("..")
    parts = [low, high] if dots else written.split(",")
    if not all(part.strip().isdigit() and 0 < int(part) <= MOST_VERSIONS for part in parts):
        raise UsageError(f"{written!r} is not read; write whole numbers up to {MOST_VERSIONS:,} as 1..8 or 1,2,4",
                         field="--versions")  # fmt: skip
    numbers = [int(part) for part in parts]
    if dots and numbers[0] > numbers[1]:
        raise UsageError(f"{written!r} is empty; write the smaller number first", field="--versions")
    return list(range(numbers[0], numbers[1] + 1)) if dots else numbers


def read_queue(written: str | None) -> list[float] | None:
    """Batches held in the queue: `0,0.5,1`. Raises UsageError."""
    if written is None:
        return None
    try:
        numbers = [float(part) for part in written.split(",")]
    except ValueError:
        numbers = [math.nan]
    if not all(math.isfinite(number) and number >= 0.0 for number in numbers):
        raise UsageError(f"{written!r} is not read; write batches as 0,0.5,1", field="--queue")
    return numbers


@command.command("manifest", short_help="Write the manifest of a version, or check one.")
@click.argument("document", metavar="MANIFEST.json|ANSWER.json", type=click.Path())
@click.option("--shards", metavar="DIR", type=click.Path(), help="Files of every rollout rank: replica-0/rank-0, ...")
@click.option("--train-version", type=click.IntRange(0), help="Optimizer steps that the weights have seen.")
@click.option("--rollout-version", type=click.IntRange(0), help="Number that replicas serve it under.")
@click.option("--parent", metavar="MANIFEST.json", type=click.Path(),
              help="The active version: the one to go back to, and what changes are against.")  # fmt: skip
@click.option("--delta", metavar="DIR", type=click.Path(), help="Changes of every rank against the active version.")
@click.option("--activate-at", metavar="TIME", help="Moment of the switch, UTC: 2026-05-04T10:00:00Z.")
@options.output_file()
def manifest_command(document: str, shards: str | None, output: str | None, **fields: Any) -> int:
    """Write the manifest of a published version with --shards, or check one.

    With --shards the layout is that of an answer of `mapsearch rollout --format json`, and every file is hashed. A
    manifest with which one request could see two versions is refused: shards that activate at different moments or are
    missing, no parent to go back to, a checksum or a layout that does not match, changes against another version.
    """
    options.check_output(output)
    from mapsearch.pooling.manifests import read_manifest, written_manifest

    if shards is not None:
        absent = [name for name in ("train_version", "rollout_version", "activate_at") if fields[name] is None]
        if absent:
            raise UsageError("is needed to write a manifest", field=f"--{absent[0].replace('_', '-')}")
        written = written_manifest(document, Path(shards), **fields)
        write_text(written.model_dump_json(indent=2, exclude={"sources"}) + "\n", output)
        return ExitCode.FOUND
    found = read_manifest(document, fields["parent"])
    print(f"{document}: version {found.rollout_version} holds: {len(found.shards):,} shards, one activation")
    return ExitCode.FOUND
