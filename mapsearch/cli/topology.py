"""`mapsearch topology`: list, show, validate and export clusters."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from mapsearch.cli.options import CatalogueName, check_output, output_file, view_format
from mapsearch.cli.render import emit_view, write_text
from mapsearch.errors import InputError

if TYPE_CHECKING:
    from mapsearch.topologies import Topology

_TOPOLOGY = CatalogueName("mapsearch.topologies")
_format = view_format("table", "json", "yaml")
_output = output_file()
_devices = click.option(
    "--devices", type=click.IntRange(1, 2**30), metavar="N",
    help="The same cluster with exactly N devices: its outermost levels shrink or grow.",
)  # fmt: skip


@click.group("topology", short_help="List, show, validate and export clusters.")
def command() -> None:
    """Clusters: built-in names, and YAML or JSON files with levels or with a graph of nodes and links."""


@command.command("list")
@_format
@_output
def list_command(format_: str, output: str | None) -> None:
    """List the built-in clusters."""
    from mapsearch.reports.topologies import list_lines, topology_data
    from mapsearch.topologies import fabric_of, load_topology, names

    check_output(output)
    fabrics = [fabric_of(load_topology(name)) for name in names()]
    data = [topology_data(fabric) for fabric in fabrics]
    emit_view(lambda width: list_lines(fabrics, width), data, format_=format_, output=output)


@command.command("show")
@click.argument("name", metavar="NAME|FILE", type=_TOPOLOGY)
@_devices
@_format
@_output
def show_command(name: str, devices: int | None, format_: str, output: str | None) -> None:
    """Show a cluster: its levels (derived, when it is a graph), its device, totals and what looks odd."""
    from mapsearch.reports.topologies import topology_data, topology_lines
    from mapsearch.topologies import fabric_of

    check_output(output)
    fabric = fabric_of(_load(name, devices))
    emit_view(lambda width: topology_lines(fabric, width=width), topology_data(fabric), format_=format_, output=output)


@command.command("validate")
@click.argument("files", metavar="NAME|FILE...", type=_TOPOLOGY, nargs=-1, required=True)
def validate_command(files: tuple[str, ...]) -> None:
    """Check topology files: one line each; warnings go to stderr, the first mistake of a file ends with exit 2."""
    from mapsearch.topologies import fabric_of, load_topology

    mistakes: list[InputError] = []
    for file in files:
        try:
            fabric = fabric_of(load_topology(file))
        except InputError as problem:
            mistakes.append(problem if problem.file else problem.within(file))
            continue
        for note in fabric.notes:
            print(f"{file}: warning: {note}", file=sys.stderr)
        shape = " x ".join(str(size) for size in reversed(fabric.regular.fan_outs))
        levels = ", ".join(f"{level.name} {level.bytes_per_s / 1e9:,.4g} GB/s" for level in reversed(fabric.levels))
        click.echo(f"{file}: ok, {fabric.devices:,} devices as {shape}; {levels}")
    for mistake in mistakes[:-1]:
        print(f"mapsearch: {mistake}", file=sys.stderr)
    if mistakes:
        raise mistakes[-1]


@command.command("export")
@click.argument("name", metavar="NAME|FILE", type=_TOPOLOGY)
@_devices
@click.option(
    "--format", "-f", "format_", type=click.Choice(("yaml", "levels", "node-link")), default="yaml", show_default=True,
    help="As it was written; as levels, derived when it is a graph; or the graph as networkx node-link JSON.",
)  # fmt: skip
@_output
def export_command(name: str, devices: int | None, format_: str, output: str | None) -> None:
    """Write a cluster as a file to edit, or as a graph for other tools."""
    from mapsearch import documents
    from mapsearch.topologies.graph import node_link
    from mapsearch.topologies.scale import levels_form

    check_output(output)
    topology = _load(name, devices)
    if format_ == "node-link":
        write_text(json.dumps(node_link(topology), indent=1, ensure_ascii=False) + "\n", output)
        return
    written = levels_form(topology) if format_ == "levels" else topology
    write_text(documents.dump(written.model_dump(mode="json", exclude_defaults=True)), output)


def _load(name: str, devices: int | None) -> Topology:
    from mapsearch.topologies import load_topology, scaled

    topology = load_topology(name)
    return topology if devices is None else scaled(topology, devices)
