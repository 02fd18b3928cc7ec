"""`mapsearch import`: a launch file as a case, a mapping or a run."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.check import emit_verdict, judged
from mapsearch.cli.render import write_text
from mapsearch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from mapsearch.launching.launch import Launch

FROM = ("launch", "megatron", "bridge", "torchtitan", "deepspeed", "mindspeed")


@click.command("import", short_help="Read a launch file as a case, a mapping or a run.")
@click.argument("file", metavar="FILE")
@click.option("--from", "from_", type=click.Choice(FROM), help="Whose launch file.  [default: by its content]")
@click.option(
    "--as",
    "as_",
    type=click.Choice(("case", "mapping", "run")),
    default="case",
    show_default=True,
    help="What to write: a case for check, a complete mapping, or a run whose choices are the file's.",
)
@click.option("--check", is_flag=True, help="Judge the case at once, as `mapsearch check` would.")
@click.option("--set", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of the script. Repeatable.")
@click.option("--model", metavar="NAME", help="The model, where the file does not name it.")
@click.option("--gpu", metavar="NAME", help="The device: H100, GB200, MI300X, ...")
@click.option("--devices", type=click.IntRange(1, 2**31), metavar="N", help="How many devices, where it does not say.")
@options.output_options
def command(
    *,
    file: str,
    from_: str | None,
    as_: str,
    check: bool,
    variables: tuple[str, ...],
    model: str | None,
    gpu: str | None,
    devices: int | None,
    format_: str | None,
    output: str | None,
    quiet: bool,
    verbose: bool,
) -> int:
    """Read a launch file, so that a job that runs somewhere can be judged with `mapsearch check`.

    A shell script or a line of Megatron-LM's or MindSpeed's flags, overrides of Megatron-Bridge, torchtitan's TOML,
    DeepSpeed's JSON, or a transcribed launch file (YAML with framework, model, mapping and run). Scripts are read and
    never run: variables, defaults and sums in them are put in; flags in any branch count, and where two disagree the
    last one does. What the file does not say stays open in the case.
    """
    options.check_output(output)
    if check and as_ != "case":
        raise UsageError(f"judges a case; drop --as {as_}", field="--check")
    from mapsearch.launching.api import read_launch

    launch = _completed(read_launch(file, kind=from_, preset=_preset(variables)), model, gpu, devices)
    if not quiet:
        for note in launch.notes:
            print(f"mapsearch: note: {note}", file=sys.stderr)
    if check:
        from mapsearch.launching.cases import case_of

        return emit_verdict(judged(case_of(launch, file=file), file, None), format_, output, verbose, quiet)
    _write(launch, as_, file, devices, format_, output)
    return ExitCode.FOUND


def _preset(variables: tuple[str, ...]) -> dict[str, str]:
    preset = {}
    for text in variables:
        name, mark, value = text.partition("=")
        if not mark or not name.strip():
            raise UsageError(f"{text!r} is not read; write it as --set TP=8", field="--set")
        preset[name.strip()] = value
    return preset


def _completed(launch: Launch, model: str | None, gpu: str | None, devices: int | None) -> Launch:
    told = {"gpu": gpu, "gpus": devices}
    hardware = {**launch.hardware, **{name: value for name, value in told.items() if value is not None}}
    named = {**launch.model, "name": model} if model is not None else launch.model
    return replace(launch, hardware=hardware, model=named)


def _write(launch: Launch, as_: str, file: str, devices: int | None, format_: str | None, output: str | None) -> None:
    import json

    from mapsearch import documents
    from mapsearch.launching.cases import case_document, case_of, run_document
    from mapsearch.launching.launch import mapping_of

    wanted = format_ or ("json" if (output or "").lower().endswith(".json") else "yaml")
    if wanted not in ("yaml", "json"):
        raise UsageError(f"{wanted!r} is for verdicts (--check); accepted: yaml or json", field="--format")
    if as_ == "mapping":
        data: Any = mapping_of(launch, devices=devices, file=file).model_dump(mode="json", exclude={"sources"})
    elif as_ == "run":
        data = run_document(launch, file=file)
    else:
        case_of(launch, file=file)
        data = case_document(launch)
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n" if wanted == "json" else documents.dump(data)
    write_text(text, output)
