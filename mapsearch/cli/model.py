"""`mapsearch model`: list, show and convert models."""

from __future__ import annotations

from typing import Any

import click

from mapsearch.cli.options import CatalogueName, check_output, output_file, view_format
from mapsearch.cli.render import emit_view, write_text
from mapsearch.errors import UsageError

_MODEL = CatalogueName("mapsearch.inventories", "models")
_format = view_format("table", "json", "yaml")
_output = output_file()
_set = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE",
    help="Give or replace a key of the file, by the file's own name; null takes one away. Repeatable.",
)  # fmt: skip


@click.group("model", short_help="List, show and convert models.")
def command() -> None:
    """Models: built-in names, mapsearch YAML, Hugging Face config.json, OLMo training files."""


@command.command("list")
@_format
@_output
def list_command(format_: str, output: str | None) -> None:
    """List the built-in models."""
    from mapsearch.inventories.models import load_model, model_names
    from mapsearch.reports.models import list_lines

    check_output(output)
    models = [load_model(name) for name in model_names()]
    data = [model.model_dump(mode="json", exclude_defaults=True) for model in models]
    emit_view(lambda width: list_lines(models), data, format_=format_, output=output)


@command.command("show")
@click.argument("name", metavar="NAME|FILE", type=_MODEL)
@click.option(
    "--sequence-length", "-s", "lengths", type=click.IntRange(1, 2**40), multiple=True, metavar="TOKENS",
    help="Length for FLOP and KV cache; repeatable.  [default: 4096 and 131072]",
)  # fmt: skip
@_set
@_format
@_output
def show_command(
    name: str, lengths: tuple[int, ...], settings: tuple[str, ...], format_: str, output: str | None
) -> None:
    """Show a model's ledger: parameters by part, active per token, states, FLOP and KV cache."""
    from mapsearch.inventories.models import load_model
    from mapsearch.reports.models import DEFAULT_LENGTHS, ledger_lines, model_ledger

    check_output(output)
    shown = model_ledger(load_model(name, read_settings(settings)), lengths or DEFAULT_LENGTHS)
    emit_view(lambda width: ledger_lines(shown, width=width), shown.to_dict(), format_=format_, output=output)


@command.command("convert")
@click.argument("name", metavar="NAME|FILE", type=_MODEL)
@_set
@_output
def convert_command(name: str, settings: tuple[str, ...], output: str | None) -> None:
    """Write a model as mapsearch YAML, with what its file lacked filled in by --set."""
    from mapsearch import documents
    from mapsearch.inventories.models import load_model

    check_output(output)
    model = load_model(name, read_settings(settings))
    write_text(documents.dump(model.model_dump(mode="json", exclude_defaults=True)), output)


def read_settings(settings: tuple[str, ...]) -> dict[str, Any]:
    """`KEY=VALUE` pairs, values as YAML writes them. Raises UsageError."""
    from mapsearch import documents

    given: dict[str, Any] = {}
    for text in settings:
        key, mark, value = (part.strip() for part in text.partition("="))
        if not (mark and key and value):
            raise UsageError(f"{text!r} is not read; write it as --set intermediate_size=32768", field="--set")
        if key in given:
            raise UsageError(f"{key} is given twice", field="--set")
        given[key] = documents.parse(value, file=f"--set {key}")
    return given
