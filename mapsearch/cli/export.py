"""`mapsearch export`: a mapping as the launch file of a framework."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.render import write_text
from mapsearch.cli.solved import inputs_for, ranked_name, read_mapping
from mapsearch.errors import ExitCode

if TYPE_CHECKING:
    from mapsearch.exported import Exported

TO = ("megatron", "bridge", "torchtitan", "deepspeed", "mindspeed")


@click.command("export", short_help="Write a mapping as the launch file of a framework.")
@click.argument("document", metavar="ANSWER.json[#RANK]|MAPPING.yaml")
@click.option("--to", type=click.Choice(TO), required=True, help="Whose launch file.")
@click.option("--rank", type=click.IntRange(1, 1000), metavar="N", help="Which mapping of the answer.  [default: 1]")
@options.input_options
@options.devices_option
@click.option(
    "--format",
    "-f",
    "format_",
    type=click.Choice(("file", "json")),
    default="file",
    show_default=True,
    help="The file alone, or a JSON of it with what it cannot say.",
)
@options.output_file()
@click.option("--quiet", "-q", is_flag=True, help="No remarks on stderr; they stand in the file.")
def command(
    *,
    document: str,
    to: str,
    rank: int | None,
    model: str | None,
    run: str | None,
    topology: str | None,
    profile: str | None,
    devices: int | None,
    format_: str,
    output: str | None,
    quiet: bool,
    **run_options: Any,
) -> int:
    """Write one mapping of an answer, or a mapping with --model, --run and --topology, as a launch file.

    megatron and mindspeed: a shell file that sets DEVICES and FLAGS; bridge: overrides of a Megatron-Bridge recipe
    (YAML); torchtitan: TOML; deepspeed: JSON. The file is read again and must say the same mapping. What the framework
    cannot express stands in the file and on stderr, and so do rules of the framework that the mapping breaks; then the
    exit code is 3. Which rank stands on which device is no part of these files.
    """
    options.check_output(output)
    mapping, about = read_mapping(ranked_name(document, rank))
    told = inputs_for(
        about, model=model, run=run, topology=topology, profile=profile, devices=devices, run_options=run_options
    )
    from mapsearch.launching.api import export

    found = export(mapping, to, **told)
    if format_ == "json":
        write_text(found.to_json(), output)
    else:
        write_text(found.text, output)
    if not quiet:
        _tell(found)
    return ExitCode.INFEASIBLE if found.refused else ExitCode.FOUND


def _tell(found: Exported) -> None:
    for one in found.unexpressed:
        print(f"mapsearch: not expressed: {one.what} {one.value}: {one.why}", file=sys.stderr)
    for refusal in found.refused:
        print(f"mapsearch: {found.framework} refuses it: {refusal.sentence}", file=sys.stderr)
    for note in found.notes:
        print(f"mapsearch: note: {note}", file=sys.stderr)
