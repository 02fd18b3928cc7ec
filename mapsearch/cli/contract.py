"""`mapsearch contract`: what a machine can confirm or refute of one mapping, in ten domains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.render import emit, write_text
from mapsearch.cli.solved import (
    TWO_POOLS,
    inputs_for,
    ranked_name,
    read_mapping,
    read_result,
    schema_of,
    tell_differing,
    two_pools,
)
from mapsearch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from mapsearch.contract import Contract
    from mapsearch.contracting.case import Pool


@click.command("contract", short_help="What a machine can confirm of one mapping, in ten domains.")
@click.argument("mapping", metavar="MAPPING.yaml|ANSWER.json[#RANK]")
@click.option("--rank", type=click.IntRange(1), metavar="N", help="Mapping of the answer to take.  [default: 1]")
@click.option("--measured", type=click.Path(), metavar="FILE.yaml", help="Hold the contract against measurements.")
@click.option("--template", is_flag=True, help="Write a file for the measurements instead of the contract.")
@click.option("--rollout", type=click.Path(), metavar="ANSWER.json",
              help="Rollout side of domains 4, 7, 8 and 9: of `mapsearch rollout --format json`; an answer about two "
              "pools has its own.")  # fmt: skip
@click.option("--training", is_flag=True, help="Of an answer about two pools the training side alone.")
@click.option("--experts", type=click.Path(), metavar="LOAD.json",
              help="Loads of the router in domain 4: of `mapsearch experts --format json`.")  # fmt: skip
@click.option("--manifest", type=click.Path(), metavar="MANIFEST.json",
              help="Manifest of a published version, held against the rollout side.")  # fmt: skip
@options.input_options
@options.devices_option
@options.output_options
def command(
    *,
    mapping: str,
    rank: int | None,
    measured: str | None,
    template: bool,
    rollout: str | None,
    training: bool,
    experts: str | None,
    manifest: str | None,
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

    Of an answer of `mapsearch rollout` both sides are in the contract: router and experts, formats, layouts and
    publishing, queue and versions.

    --template writes a file with every quantity of the contract; filled in, --measured holds the contract against
    it: predicted beside measured, the verdict on the measurement, and which formula is off. Exit 0 when nothing is
    broken, 3 when something is.
    """
    options.check_output(output)
    name = ranked_name(mapping, rank)
    wanted, about = read_mapping(name)
    told = inputs_for(
        about, model=model, run=run, topology=topology, profile=profile, devices=devices, run_options=run_options
    )
    from mapsearch.contracting.api import contract_of
    from mapsearch.expert_load import EXPERT_LOAD_SCHEMA, ExpertLoad

    contract = contract_of(
        wanted,
        **told,
        measured=measured,
        pool=_pool(_rollout_side(name, rollout, training), manifest),
        load=None if experts is None else read_result(ExpertLoad, experts, EXPERT_LOAD_SCHEMA, "experts"),
        source=name,
    )
    if template:
        _write_template(contract, output)
        return ExitCode.FOUND
    emit(contract, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
    tell_differing(about, contract.provenance, quiet=quiet)
    return ExitCode.INFEASIBLE if contract.verdict == "broken" else ExitCode.FOUND


def _rollout_side(name: str, rollout: str | None, training: bool) -> str | None:
    """The answer about two pools that the rollout side is taken from. Raises UsageError."""
    if training and rollout is not None:
        raise UsageError("leaves the rollout side out, and --rollout names one; drop either", field="--training")
    if rollout is None and not training and schema_of(name) == TWO_POOLS:
        return name
    return rollout


def _pool(rollout: str | None, manifest: str | None) -> Pool | None:
    """What is known of the rollout side. Raises InputError."""
    if rollout is None:
        if manifest is not None:
            raise UsageError("is held against a rollout side; give an answer about two pools or --rollout",
                             field="--manifest")  # fmt: skip
        return None
    from mapsearch.pooling.answers import rollout_of
    from mapsearch.pooling.contracts import pool_of
    from mapsearch.pooling.manifests import read_manifest

    answer = two_pools(rollout)
    return pool_of(answer, rollout_of(answer), None if manifest is None else read_manifest(manifest, None))


def _write_template(contract: Contract, output: str | None) -> None:
    from mapsearch.contracting.measured import template_text
    from mapsearch.reports.tables import placement_text, sizes_text

    write_text(template_text(contract, f"{sizes_text(contract.mapping)}; {placement_text(contract.mapping)}"), output)
