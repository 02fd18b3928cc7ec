"""`mapsearch contract`: what a machine can confirm or refute of one mapping, in ten domains."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.check import differing, names_of, read_mapping, run_of
from mapsearch.cli.render import emit, write_text
from mapsearch.errors import ExitCode, UsageError, listed

if TYPE_CHECKING:
    from mapsearch.contract import Contract


@click.command("contract", short_help="What a machine can confirm of one mapping, in ten domains.")
@click.argument("mapping", metavar="MAPPING.yaml|ANSWER.json[#RANK]")
@click.option("--rank", type=click.IntRange(1), metavar="N", help="Mapping of the answer to take.  [default: 1]")
@click.option("--measured", type=click.Path(), metavar="FILE.yaml", help="Hold the contract against measurements.")
@click.option("--template", is_flag=True, help="Write a file for the measurements instead of the contract.")
@options.input_options
@options.devices_option
@options.output_options
def command(
    *,
    mapping: str,
    rank: int | None,
    measured: str | None,
    template: bool,
    model: str | None,
    run: str | None,
    topology: str | None,
    profile: str | None,
    devices: int | None,
    format_: str | None,
    output: str | None,
    quiet: bool,
    verbose: bool,
    **run_options: Any,
) -> int:
    """The contract of one mapping: its figures in ten domains, each with a verdict and a way to measure it.

    The mapping, and what it was solved for, are read as by `mapsearch check`. A row holds, is broken, must be
    measured, or is not given; --verbose shows what each rests on and how it is measured.

    --template writes a file with every quantity of the contract; filled in, --measured holds the contract against
    it: predicted beside measured, the verdict on the measurement, and which formula is off. Exit 0 when nothing is
    broken, 3 when something is.
    """
    options.check_output(output)
    if rank is not None and "#" in mapping:
        raise UsageError("names a rank after # as well; drop one of them", field="--rank")
    name = mapping if rank is None else f"{mapping}#{rank}"
    wanted, about = read_mapping(name)
    solved_for = names_of(about)
    from mapsearch.contracting.api import contract_of

    contract = contract_of(
        wanted,
        model=model or solved_for.get("model") or options.DEFAULT_MODEL,
        run=run_of(about, run, run_options),
        topology=topology or solved_for.get("topology") or options.DEFAULT_TOPOLOGY,
        profile=profile or (solved_for.get("profile") if topology is None else None),
        devices=devices or (about.devices if about and topology is None else None),
        measured=measured,
        source=name,
    )
    if template:
        _write_template(contract, output)
        return ExitCode.FOUND
    emit(contract, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
    other = differing(about, contract.provenance)
    if other and not quiet:
        print(f"mapsearch: note: not the same {listed(other)} as the answer was solved for", file=sys.stderr)
    return ExitCode.INFEASIBLE if contract.verdict == "broken" else ExitCode.FOUND


def _write_template(contract: Contract, output: str | None) -> None:
    from mapsearch.contracting.measured import template_text
    from mapsearch.reports.tables import placement_text, sizes_text

    write_text(template_text(contract, f"{sizes_text(contract.mapping)}; {placement_text(contract.mapping)}"), output)
