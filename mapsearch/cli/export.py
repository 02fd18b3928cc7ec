"""`mapsearch export`: a mapping as the launch file of a framework."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.check import names_of, read_mapping, run_of
from mapsearch.cli.render import write_text
from mapsearch.errors import ExitCode, UsageError

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
    if rank is not None:
        if "#" in document:
            raise UsageError(f"picks a mapping of the answer, and so does {document!r}", field="--rank")
        document = f"{document}#{rank}"
    mapping, about = read_mapping(document)
    solved_for = names_of(about)
    from mapsearch.launching.api import export

    found = export(
        mapping,
        to,
        model=model or solved_for.get("model") or options.DEFAULT_MODEL,
        run=run_of(about, run, run_options),
        topology=topology or solved_for.get("topology") or options.DEFAULT_TOPOLOGY,
        profile=profile or (solved_for.get("profile") if topology is None else None),
        devices=devices or (about.devices if about and topology is None else None),
    )
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
