"""`mapsearch scale-down`: the small run that keeps most of what a mapping has to prove."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.progress import watching
from mapsearch.cli.render import emit
from mapsearch.cli.solved import inputs_for, read_mapping, tell_differing
from mapsearch.errors import UsageError
from mapsearch.interrupts import Interrupts

if TYPE_CHECKING:
    from mapsearch.scaledown import ScaledDown


@click.command("scale-down", short_help="The small run that keeps most of what a mapping has to prove.")
@click.argument("mapping", metavar="MAPPING.yaml|ANSWER.json[#RANK]")
@options.input_options
@click.option(
    "--devices", type=click.IntRange(1, 2**20), default=64, show_default=True, help="Devices of the small run."
)
@click.option(
    "--of", type=click.IntRange(1, 2**30), metavar="N", help="The full cluster with exactly N devices, as in solve."
)
@click.option("--keep", multiple=True, metavar="QUANTITY", help="Has to be kept: 'sequence length'. May be repeated.")
@click.option("--write", metavar="DIR", help="Write model, run, topology, profile and mapping of the small run there.")
@options.output_options
def command(
    *,
    mapping: str,
    model: str | None,
    run: str | None,
    topology: str | None,
    profile: str | None,
    devices: int,
    of: int | None,
    keep: tuple[str, ...],
    write: str | None,
    format_: str | None,
    output: str | None,
    quiet: bool,
    verbose: bool,
    **run_options: Any,
) -> int:
    """A run on 8 or 64 devices that validates a full one: reduced model, part of the cluster, and mapping.

    Of all of them the one that keeps most of what the full run has to prove: what kernels and collectives see on each
    rank, kinds of groups and the levels that they cross. The answer lists what a measurement on it confirms, and what
    it does not. The files of --write are read by every other command.
    Exit 3 when nothing on so many devices keeps what --keep asks for and fits.
    """
    options.check_output(output)
    wanted, about = read_mapping(mapping)
    told = inputs_for(
        about, model=model, run=run, topology=topology, profile=profile, devices=of, run_options=run_options
    )
    with Interrupts() as interrupts:
        with watching(quiet=quiet) as progress:
            from mapsearch.scaling.api import scale_down  # numpy comes with it: the bar is there first

            found = scale_down(
                wanted,
                **told,
                small=devices,
                keep=keep,
                progress=progress,
            )
        emit(found, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
        sys.stdout.flush()
    tell_differing(about, found.provenance, quiet=quiet)
    if write is not None and found.inputs:
        _write(found, write, quiet=quiet)
    return options.exit_code(found.status, held=found.mapping is not None, interrupted=interrupts.seen)


def _write(found: ScaledDown, folder: str, *, quiet: bool) -> None:
    """The documents of the small run into a folder. Raises UsageError."""
    from mapsearch import documents

    home = Path(folder)
    try:
        home.mkdir(parents=True, exist_ok=True)
        for name, document in found.inputs.items():
            (home / f"{name}.yaml").write_text(documents.dump(document), encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"cannot be written: {problem.strerror}", file=folder, field="--write") from None
    if not quiet:
        print(f"written to {folder}: {', '.join(f'{name}.yaml' for name in found.inputs)}", file=sys.stderr)
