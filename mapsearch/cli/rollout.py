"""`mapsearch rollout`: training and rollout on two pools, and manifests of published versions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from mapsearch.cli import options
from mapsearch.cli.render import emit_view, write_text
from mapsearch.errors import ExitCode, UsageError

FORMATS = ("table", "json", "yaml")
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
@click.option("--time-limit", type=click.FloatRange(min=0.0), metavar="SECONDS", help="Stop with the best so far.")
@click.option("--proof", type=click.Choice(["auto", "none"]), default="auto", show_default=True,
              help="Prove the training mapping by a solver as well.")  # fmt: skip
@options.view_format(*FORMATS)
@options.output_file()
@click.option("--verbose", "-v", is_flag=True, help="Every division of the devices.")
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
    time_limit: float | None,
    proof: str,
    format_: str,
    output: str | None,
    verbose: bool,
) -> int | None:
    """Find the training mapping, the way to serve and the division of the devices with the most RL tokens per second.

    A step is the longest of training, supply of one batch, what keeps samples within the allowed versions, and
    publishing; the answer names the constraint that binds. Divisions are whole outer units of the cluster.
    """
    if ctx.invoked_subcommand is not None:
        return None
    options.check_output(output)
    from mapsearch.pooling.api import rollout as solve_pools
    from mapsearch.reports.pools import pool_lines

    found = solve_pools(
        model, run, topology, rollout=rollout, profile=profile, devices=devices, time_limit=time_limit, proof=proof,
        told=_progress if sys.stderr.isatty() else None,
    )  # fmt: skip
    data = found.model_dump(mode="json", by_alias=True) if format_ != "table" else None
    emit_view(lambda width: pool_lines(found, width=width, verbose=verbose), data, format_=format_, output=output)
    return options.exit_code(found.status, held=found.mapping is not None, interrupted=False)


def _progress(done: int, count: int, best_s: float) -> None:
    print(f"\rdivision {done + 1} of {count}, best step {best_s:,.1f} s ", end="", file=sys.stderr, flush=True)


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
