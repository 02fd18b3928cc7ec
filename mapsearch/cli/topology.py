"""`mapsearch topology`: list, show, validate, export, import and compose clusters."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli.options import CatalogueName, check_output, output_file, view_format
from mapsearch.cli.render import emit_view, write_text
from mapsearch.cli.solved import read_result
from mapsearch.errors import InputError, UsageError

if TYPE_CHECKING:
    from mapsearch.topologies import Topology
    from mapsearch.topologies.composing import Wishes
    from mapsearch.topologies.fabric import Fabric

_TOPOLOGY = CatalogueName("mapsearch.topologies")
_format = view_format("table", "json", "yaml")
_output = output_file()
_devices = click.option(
    "--devices", type=click.IntRange(1, 2**30), metavar="N",
    help="The same cluster with exactly N devices: its outermost levels shrink or grow.",
)  # fmt: skip


@click.group("topology", short_help="List, show, validate, export, import and compose clusters.")
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
@view_format("table", "json", "yaml", "svg", "html")
@click.option("--placement", metavar="FILE.json", help="Of `placement --format json`: groups to click on, for html.")
@click.option("--audit", metavar="FILE.json", help="Of `audit --format json`: levels coloured by load.")
@_output
def show_command(
    name: str, devices: int | None, format_: str, placement: str | None, audit: str | None, output: str | None
) -> None:
    """Show a cluster: its levels (derived, when it is a graph), its device, totals and what looks odd.

    svg draws its levels, html its devices as well: with a placement the groups of every axis, with an audit how busy
    the links of each level are.
    """
    from mapsearch.reports.topologies import topology_data, topology_lines
    from mapsearch.topologies import fabric_of

    check_output(output)
    topology = _load(name, devices)
    fabric = fabric_of(topology)
    if format_ in ("svg", "html"):
        _draw(topology, fabric, placement, audit, format_, output)
        return
    for option, given in (("--placement", placement), ("--audit", audit)):
        if given is not None:
            raise UsageError("is drawn; add --format html or --format svg", field=option)
    emit_view(lambda width: topology_lines(fabric, width=width), topology_data(fabric), format_=format_, output=output)


def _draw(
    topology: Topology, fabric: Fabric, placement: str | None, audit: str | None, format_: str, output: str | None
) -> None:
    """The picture of a cluster. Raises InputError when the files are of another one."""
    from mapsearch.audited import AUDIT_SCHEMA, Audit
    from mapsearch.placement import PLACEMENT_SCHEMA, Placement
    from mapsearch.reports.exports.cluster import MOST_DEVICES, cluster_html, cluster_svg, picture_of
    from mapsearch.topologies.graph import graph_of, nodes_of_type

    names = nodes_of_type(graph_of(topology), "device") if fabric.devices <= MOST_DEVICES else []
    placed = None if placement is None else read_result(Placement, placement, PLACEMENT_SCHEMA, "placement")
    if placed is not None and not names:
        raise UsageError(f"is drawn device by device, up to {MOST_DEVICES:,}", file=placement, field="--placement")
    if placed is not None and not set(placed.devices) <= set(names):
        strange = next(one for one in placed.devices if one not in set(names))
        raise InputError(f"places a rank on {strange!r}, which {topology.name} does not have", file=placement)
    picture = picture_of(
        fabric, names, placed, None if audit is None else read_result(Audit, audit, AUDIT_SCHEMA, "audit")
    )
    write_text(cluster_svg(picture) if format_ == "svg" else cluster_html(picture), output)


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


_JOINING = (
    click.option("--device", metavar="PART", help="What the devices are: a known part such as h100 or mi300x, or a "
                 "cluster (built in, or a file) whose device is meant."),
    click.option("--name", metavar="NAME", default="", help="Name of the cluster; else the file's."),
    click.option("--nic-rate", metavar="RATE", help="Of one NIC, one way, where no file says it: 400Gb/s."),
    click.option("--link-rate", metavar="RATE", help="Of one NVLink, xGMI or HCCS link, one way: 25GB/s."),
    click.option("--pcie", type=click.Choice(("gen3", "gen4", "gen5", "gen6")),
                 help="Generation of the devices' x16 slots, where no file says it."),
    click.option("--nics", type=click.Choice(("near", "all")), default="near", show_default=True,
                 help="NICs that reach the network: those that some device has none nearer than, or all."),
    click.option("--uplink", metavar="HOW", help="Links between switches that have no rate: nonblocking (taken "
                 "when you say nothing), an oversubscription such as 4:1, or the rate of one link."),
    click.option("--only", metavar="NODES", default="", help="Nodes of the fabric to take, such as gpu[001-256,300]; "
                 "the others, and switches without one of them below, are left out."),
    click.option("--form", type=click.Choice(("auto", "graph", "levels")), default="auto", show_default=True,
                 help="What to write; auto takes levels where they say the same and the graph is large."),
    click.option("--repair", is_flag=True, help="Mend broken or conflicting input and say what was done."),
)  # fmt: skip


def _joining(function: Callable[..., None]) -> Callable[..., None]:
    """Options of `import` and `compose`: what the files do not say."""
    for option in reversed(_JOINING):
        function = option(function)
    return function


def _wishes(options: dict[str, Any]) -> Wishes:
    from mapsearch.topologies.composing import Wishes
    from mapsearch.topologies.composing.wishes import Uplink, rate_of_option, uplink_of

    uplink = options.pop("uplink")
    nic_rate = rate_of_option(options.pop("nic_rate"), "--nic-rate")
    link_rate = rate_of_option(options.pop("link_rate"), "--link-rate")
    uplink_ = uplink_of(uplink) if uplink else Uplink()
    return Wishes(nic_rate=nic_rate, link_rate=link_rate, uplink=uplink_, **options)


@command.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@_joining
@_output
def import_command(files: tuple[str, ...], output: str | None, **options: Any) -> None:
    """Read other tools' files: what is in a node (nvidia-smi, rocm-smi, npu-smi, NCCL), how nodes are joined, or both.

    The format is told from the text. What was filled in or repaired goes to stderr.
    """
    from mapsearch.topologies.composing import imported
    from mapsearch.topologies.importers import read_files

    check_output(output)
    wishes = _wishes(options)
    _write(*imported(read_files(files, repair=wishes.repair), wishes), output)


@command.command("compose")
@click.option("--node", required=True, metavar="FILE", help="What is in a node, as one of its tools printed it.")
@click.option(
    "--fabric",
    required=True,
    multiple=True,
    metavar="FILE",
    help="How nodes are joined: Slurm, ibnetdiscover, Kueue, ...; several files that belong together: again.",
)
@_joining
@_output
def compose_command(node: str, fabric: tuple[str, ...], output: str | None, **options: Any) -> None:
    """Join the inside of a node with the fabric between nodes: every node of the fabric gets that inside."""
    from mapsearch.topologies.composing import composed
    from mapsearch.topologies.importers import read_file, read_files
    from mapsearch.topologies.importers.base import Between, Inside

    check_output(output)
    wishes = _wishes(options)
    inside = read_file(node, repair=wishes.repair)
    fabrics = read_files(fabric, repair=wishes.repair)
    if len(fabrics) > 1:
        said = ", ".join(f"{file} ({one.format})" for file, one in fabrics)
        raise InputError(f"--fabric: {said} do not belong together; several files are of one fabric and format")
    where, between = fabrics[0]
    if not isinstance(inside, Inside):
        raise InputError(f"({inside.format}) does not say what is in a node; --node takes a file that does", file=node)
    if not isinstance(between, Between):
        raise InputError(f"({between.format}) is no fabric between nodes; --fabric takes one", file=where)
    _write(*composed((node, inside), (where, between), wishes), output)


def _write(topology: Topology, notes: list[str], output: str | None) -> None:
    from mapsearch import documents

    for note in notes:
        print(f"mapsearch: note: {note}", file=sys.stderr)
    document = {"name": topology.name, **topology.model_dump(mode="json", exclude_defaults=True)}
    if output is not None and output.lower().endswith(".json"):
        write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", output)
        return
    values = 4 * len(topology.nodes) + 10 * len(topology.links)
    if values > documents.MAX_NODES:
        raise InputError(
            f"makes {len(topology.nodes):,} nodes and {len(topology.links):,} links, more than is read from YAML "
            f"({documents.MAX_NODES:,} values); write JSON: --output FILE.json"
        )
    write_text(documents.dump(document), output)


def _load(name: str, devices: int | None) -> Topology:
    from mapsearch.topologies import load_topology, scaled

    topology = load_topology(name)
    return topology if devices is None else scaled(topology, devices)
