"""`mapsearch check`: one mapping, every relation with its margin; or a case from practice, with its verdict."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.render import emit
from mapsearch.errors import ExitCode, InputError, UsageError, listed

if TYPE_CHECKING:
    from mapsearch.answer import Provenance
    from mapsearch.inventories.case import Case
    from mapsearch.inventories.mapping import Mapping
    from mapsearch.inventories.run import Run
    from mapsearch.verdict import Verdict

_ANSWER = "mapsearch.answer/"
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
    solved_for = names_of(about)
    chosen = run_of(about, run, run_options)
    from mapsearch.api import check

    report = check(
        wanted,
        model=model or solved_for.get("model") or options.DEFAULT_MODEL,
        run=chosen,
        topology=topology or solved_for.get("topology") or options.DEFAULT_TOPOLOGY,
        profile=profile or (solved_for.get("profile") if topology is None else None),
        devices=devices or (about.devices if about and topology is None else None),
    )
    emit(report, format_=options.output_format(format_, output), output=output, verbose=verbose, quiet=quiet)
    other = differing(about, report.provenance)
    if other and not quiet:
        print(f"mapsearch: note: not the same {listed(other)} as the answer was solved for", file=sys.stderr)
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


def run_of(about: Provenance | None, run: str | None, run_options: dict[str, Any]) -> Run:
    """The run that is asked for, else the answer's with its options; options given here win. Raises InputError."""
    before = about.overrides if about and run is None else {}
    return options.read_run(
        run or names_of(about).get("run") or options.DEFAULT_RUN,
        overrides={name: changed(name, run_options[name], before) for name in options.OVERRIDES},
        constraints={name: before.get(name, []) for name in options.CONSTRAINTS},
        price=before.get("price", []),
    )


def changed(option: str, now: Any, before: dict[str, list[str]]) -> Any:
    """What an option says here, else what it said when the answer was solved, else None."""
    return now if now is not None else next(iter(before.get(option, [])), None)


def names_of(about: Provenance | None) -> dict[str, str]:
    """The inputs an answer names, without the remark that they are built in."""
    if about is None:
        return {}
    names = {"model": about.model, "run": about.run, "topology": about.topology, "profile": about.profile}
    return {kind: shown.removesuffix(" (built in)") for kind, shown in names.items()}


def differing(before: Provenance | None, now: Provenance | None) -> list[str]:
    """Inputs whose content is not what the answer was solved for: files that changed, or options given to `solve`."""
    if before is None or now is None:
        return []
    return [kind for kind, digest in before.input_sha256.items() if now.input_sha256.get(kind, digest) != digest]


def read_mapping(name: str) -> tuple[Mapping, Provenance | None]:
    """The mapping of a file, and where it came from when the file is an answer. Raises InputError."""
    from mapsearch import documents
    from mapsearch.inventories.base import validate
    from mapsearch.inventories.mapping import Mapping

    path, mark, rank = name.rpartition("#") if "#" in name else (name, "", "")
    data = documents.load(path)
    if not (isinstance(data, dict) and str(data.get("schema", "")).startswith(_ANSWER)):
        if mark:
            raise InputError("is not an answer of `mapsearch solve`, so #RANK picks nothing from it", file=path)
        return validate(Mapping, data, file=path), None
    from pydantic import ValidationError

    from mapsearch.answer import Answer
    from mapsearch.records import first_problem

    try:
        answer = Answer.model_validate(data)
    except ValidationError as problem:
        raise first_problem(Answer, problem, path) from None
    if rank and not rank.isdigit():
        raise InputError(f"the rank after # is a whole number, not {rank!r}", file=path)
    found = {one.rank: one for one in answer.mappings}.get(int(rank or 1))
    if found is None:
        held = f"it holds {len(answer.mappings)}" if answer.mappings else f"it holds none (status {answer.status})"
        raise InputError(f"has no mapping of rank {rank or 1}; {held}", file=path)
    stages = {"layout": found.layout, "recompute_stages": found.recompute_stages}
    plain = {**found.sizes, **found.choices, "placement": found.placement, **stages}
    return validate(Mapping, plain, file=path), answer.provenance
