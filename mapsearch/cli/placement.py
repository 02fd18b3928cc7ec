"""`mapsearch placement`: which device every rank stands on, where every group lives, and files for launchers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.render import emit, write_text
from mapsearch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from mapsearch.placing.api import Placing

_AXES = ("tp", "cp", "dp", "pp", "etp", "ep", "edp")
_EXPORTS = ("megatron", "torchrun", "slurm", "rankfile", "nccl", "json")


@click.command("placement", short_help="Ranks on devices, where groups live, files for launchers.")
@click.argument("document", metavar="ANSWER.json[#RANK]|MAPPING.yaml")
@options.input_options
@click.option("--rank", type=click.IntRange(1, 1000), metavar="N", help="Which mapping of the answer.  [default: 1]")
@click.option(
    "--links", is_flag=True, help="Place ranks on the actual links: the busiest one least busy, then fewest hops."
)
@click.option("--axis", type=click.Choice(_AXES), help="List the groups of this axis.")
@click.option("--group", type=click.IntRange(0), metavar="N", help="List the members of this group; needs --axis.")
@click.option("--of", "of", metavar="RANK|DEVICE", help="List the groups of one global rank, or of one device.")
@click.option(
    "--export", type=click.Choice(_EXPORTS), help="Write files for a launcher: into the folder, or file, of --output."
)
@click.option("--hosts", type=click.Path(), metavar="FILE", help="Names of the hosts in use, one per line, in order.")
@click.option(
    "--per-host", type=click.IntRange(1), metavar="N", help="Devices of a host, where innermost units are larger."
)
@click.option(
    "--cores-per-host", type=click.IntRange(1), metavar="N", help="Cores of a host, shared out by a rankfile."
)
@options.output_options
def command(
    *,
    document: str,
    model: str | None,
    run: str | None,
    topology: str | None,
    profile: str | None,
    rank: int | None,
    links: bool,
    axis: str | None,
    group: int | None,
    of: str | None,
    export: str | None,
    hosts: str | None,
    per_host: int | None,
    cores_per_host: int | None,
    format_: str | None,
    output: str | None,
    quiet: bool,
    verbose: bool,
    **run_options: Any,
) -> int:
    """Ranks on devices: the levels that the groups of every axis cross, and the devices that they stand on.

    Of an answer of `solve --format json`, or of a mapping with --topology. The table sums groups up; --axis lists
    those of one axis, --group and --of single ones; CSV has a line per rank, JSON everything.

    Devices are those that the placement names, level by level. With --links every link of the graph counts by itself,
    holes and degraded links too, and model, run and profile say how much each axis sends (an answer names them).
    """
    if export is None or export == "json":
        options.check_output(output)
    if group is not None and axis is None:
        raise UsageError("numbers the groups of one axis; say which with --axis", field="--group")
    from mapsearch.placing.api import placement_of

    named = _Named(document, model, run, topology, profile, rank, links, run_options)
    placing = _placing(named)
    if export is not None and export != "json":
        return _export(placing, export, output, hosts, per_host, cores_per_host, quiet=quiet)
    placement = placement_of(placing)
    if export is None and (axis is not None or of is not None):
        from mapsearch.reports.placements import narrowed

        placement = narrowed(placement, axis=axis, group=group, of=of)
    chosen = "json" if export == "json" else options.output_format(format_, output)
    emit(placement, format_=chosen, output=output, verbose=verbose, quiet=quiet)
    sys.stdout.flush()
    return ExitCode.FOUND


@dataclass(frozen=True)
class _Named:
    """The inputs as they were named."""

    document: str
    model: str | None
    run: str | None
    topology: str | None
    profile: str | None
    rank: int | None
    links: bool
    run_options: dict[str, Any]


def _placing(asked: _Named) -> Placing:
    """The mapping on its cluster. Raises InputError, UsageError."""
    from mapsearch.cli.solved import names_of, notes_of, ranked_name, read_mapping, run_of
    from mapsearch.placing.api import placing_of, topology_of

    document = asked.document
    name = ranked_name(document, asked.rank)
    mapping, about = read_mapping(name)
    solved_for = names_of(about)
    wanted = asked.topology or solved_for.get("topology")
    cluster = topology_of(about, wanted, document, named=asked.topology is not None)
    if not asked.links:
        return placing_of(mapping, cluster, name=name, notes=notes_of(document))
    from mapsearch.inputs import read_for, read_inputs
    from mapsearch.placing.volumes import sent_bytes_of

    every = read_inputs(
        asked.model or solved_for.get("model") or options.DEFAULT_MODEL,
        run_of(about, asked.run, asked.run_options),
        cluster,
        asked.profile or solved_for.get("profile"),
        None,
    )
    notes = notes_of(document)
    sent_bytes = sent_bytes_of(mapping, read_for(every, mapping, notes).facts)
    return placing_of(mapping, cluster, name=name, notes=notes, sent_bytes=sent_bytes)


def _export(
    placing: Placing,
    format_: str,
    output: str | None,
    hosts: str | None,
    per_host: int | None,
    cores_per_host: int | None,
    *,
    quiet: bool,
) -> int:
    """Write a launcher's files. Raises UsageError, InputError."""
    from mapsearch import documents
    from mapsearch.placing.exports import EXPORTS, exported
    from mapsearch.placing.exports.job import Job
    from mapsearch.placing.hosts import hosts_of, named

    there = hosts_of(placing.placed, placing.topology, per_host)
    if hosts is not None:
        there = named(there, documents.read_text(hosts), hosts)
    files = exported(Job(placing.placed, tuple(there), cores_per_host), format_)
    single = EXPORTS[format_].single
    if single and (output is None or not Path(output).is_dir()):
        options.check_output(output)
        write_text(files[single], output)
        return ExitCode.FOUND
    if output is None:
        raise UsageError(f"{format_} is {len(files)} files: {', '.join(files)}; name their folder", field="--output")
    folder = Path(output)
    try:
        folder.mkdir(parents=False, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"cannot be written: {problem.strerror}", file=output, field="--output") from None
    if not quiet:
        made = f"; {len(there):,} hosts are called {there[0].name} to {there[-1].name}, --hosts FILE names yours"
        print(f"written to {output}: {', '.join(files)}{'' if hosts else made}", file=sys.stderr)
    return ExitCode.FOUND
