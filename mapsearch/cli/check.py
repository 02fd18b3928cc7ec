"""`mapsearch check`: one mapping, every relation with its margin; or a case from practice, with its verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.render import emit
from mapsearch.cli.solved import inputs_for, notes_of, read_mapping, tell_differing
from mapsearch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from mapsearch.inventories.case import Case
    from mapsearch.verdict import Verdict

_VERDICT_CODES = {
    "infeasible": ExitCode.INFEASIBLE,
    "out of memory": ExitCode.INFEASIBLE,
    "undetermined": ExitCode.STOPPED,
}


@click.command("check", short_help="Judge one mapping, or a case from practice.")
@click.argument("mapping", metavar="MAPPING.yaml|ANSWER.json[#RANK]|CASE.yaml")
@options.input_options
@options.devices_option
@options.output_options
def command(
    *,
    mapping: str,
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
    """Judge one mapping: every relation with its demand, limit and margin.

    The mapping is a YAML file of sizes, choices and placement, or one mapping of an answer that `solve --format
    json` wrote (`answer.json#2` is its second). An answer also says which model, run, topology and profile it was
    solved for, and with which options; an option given here wins over it, and --run or --topology over its options
    too. Exit 0 when every relation holds, 3 when one does not.

    A case is a YAML file with the records model, hardware, mapping and run, each as far as it is known (`mapsearch
    schema case`). What it does not give is listed and tried over legal values; the verdict is feasible or slow (exit
    0), infeasible or out of memory (3), or undetermined (4), with the fact that decides. Of the input options only
    --framework applies to it.
    """
    options.check_output(output)
    case = read_case(mapping)
    if case is not None:
        given = {"model": model, "run": run, "topology": topology, "profile": profile, "devices": devices}
        refuse_with_case(mapping, {**given, **{name: run_options[name] for name in options.OVERRIDES}})
        return emit_verdict(judged(case, mapping, run_options["framework"]), format_, output, verbose, quiet)
    wanted, about = read_mapping(mapping)
    told = inputs_for(
        about, model=model, run=run, topology=topology, profile=profile, devices=devices, run_options=run_options
    )
    from mapsearch.api import check

    report = check(wanted, **told, answer_notes=notes_of(mapping))
    emit(report, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
    tell_differing(about, report.provenance, quiet=quiet)
    return ExitCode.FOUND if report.feasible else ExitCode.INFEASIBLE


def emit_verdict(verdict: Verdict, format_: str | None, output: str | None, verbose: bool, quiet: bool) -> int:
    """Show a verdict; its exit code."""
    emit(verdict, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
    return _VERDICT_CODES.get(verdict.verdict, ExitCode.FOUND)


def read_case(name: str) -> Case | None:
    """The case of a file; None when it is a mapping or an answer, or no file. Raises InputError."""
    from mapsearch import documents
    from mapsearch.inventories.base import validate
    from mapsearch.inventories.case import Case, is_case

    data = None if "#" in name else documents.load(name)
    return validate(Case, data, file=name) if is_case(data) else None


def refuse_with_case(name: str, given: dict[str, Any]) -> None:
    """Options say what a mapping does not; a case says it itself. Raises UsageError."""
    for option, value in given.items():
        if value is not None and option != "framework":
            spelled = f"--{option.replace('_', '-')}"
            raise UsageError(f"is a case and brings its own {option.replace('_', ' ')}; drop {spelled}", file=name)


def judged(case: Case, name: str, framework: str | None) -> Verdict:
    """The verdict on a case, under another framework when one is given. Raises InputError."""
    from mapsearch.judging.judge import judge

    if framework is not None:
        case = case.model_copy(update={"run": case.run.model_copy(update={"framework": framework})})
    return judge(case, name=name)
