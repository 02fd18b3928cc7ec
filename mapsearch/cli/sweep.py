"""`mapsearch sweep`: many searches from one file, resumable, here or on a Dask cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mapsearch.cli.options import view_format
from mapsearch.cli.progress import sweeping
from mapsearch.cli.render import emit_view, write_text
from mapsearch.errors import ExitCode, UsageError, listed, near_miss
from mapsearch.interrupts import Interrupts

if TYPE_CHECKING:
    from mapsearch.sweeps.run import Plan, SweepResult

_RANKED_BY = ("tokens-per-s", "step-time", "mfu", "memory")


@click.command("sweep", short_help="Run many searches from one file; what is killed continues.")
@click.argument("file", metavar="SWEEP", type=click.Path())
@click.option("--output", "-o", metavar="DIR", type=click.Path(), help="Folder of the results.  [needed to run]")
@click.option(
    "--jobs", "-j", type=click.IntRange(1, 4096), metavar="N", help="Local processes; 1: in this one.  [default: cores]"
)
@click.option("--scheduler", metavar="ADDRESS", help="Run on the Dask cluster of this scheduler: tcp://host:port.")
@click.option("--local-cluster", type=click.IntRange(1, 4096), metavar="N", help="Run on N Dask workers made here.")
@click.option("--retry-failed", is_flag=True, help="Run items again that have failed before.")
@click.option("--export", is_flag=True, help="Run nothing: write results.parquet from the results that are there.")
@click.option("--dry-run", is_flag=True, help="Run nothing: list the items.")
@click.option(
    "--group-by",
    multiple=True,
    metavar="SETTING",
    help="Show the best item of each value. Repeatable.  [default: model]",
)
@click.option(
    "--rank-by",
    type=click.Choice(_RANKED_BY),
    default=_RANKED_BY[0],
    show_default=True,
    help="What the best is best in.",
)
@view_format("table", "json", "csv", help_="How to write the summary.")
@click.option("--quiet", "-q", is_flag=True, help="No progress, no remarks.")
@click.option("--verbose", "-v", is_flag=True, help="All items and all errors in the table.")
def command(
    *,
    file: str,
    output: str | None,
    jobs: int | None,
    scheduler: str | None,
    local_cluster: int | None,
    retry_failed: bool,
    export: bool,
    dry_run: bool,
    group_by: tuple[str, ...],
    rank_by: str,
    format_: str,
    quiet: bool,
    verbose: bool,
) -> int:
    """Run the searches of a SWEEP file: grids over models, runs, clusters, devices, fields of these, and constraints.

    Each result is a line of DIR/results.jsonl before the next is taken; the same command continues a sweep that was
    stopped or killed, and a changed file runs only what is missing. DIR/results.parquet is written at the end. Ctrl-C
    lets running items end; a second one stops at once.

    Exit codes: 0 every item has a result, 3 all are proven infeasible, 4 an item has failed or is missing.
    """
    if dry_run:
        return _planned(file, format_, verbose=verbose)
    if output is None:
        raise UsageError("names the folder of the results; give one", field="--output")
    with Interrupts() as interrupts, sweeping(quiet=quiet) as (progress, remark):
        from mapsearch.sweeps import run

        plan = run.plan_of(file)
        _check_groups(plan, group_by)
        if export:
            result = run.export(plan, output)
        else:
            result = run.sweep(
                plan, output, jobs=jobs, scheduler=scheduler, local_cluster=local_cluster, retry_failed=retry_failed,
                progress=progress, remark=remark,
            )  # fmt: skip
    from mapsearch.sweeps.settings import counted

    _show(result, group_by, rank_by, format_, quiet=quiet, verbose=verbose)
    code = exit_code(result, interrupted=interrupts.seen)
    if not quiet and (result.interrupted or result.missing) and not export:
        print(f"mapsearch: not run yet: {counted(result.missing, 'item')}; the same command continues", file=sys.stderr)
    return code


def exit_code(result: SweepResult, *, interrupted: bool = False) -> ExitCode:
    """The exit code that a sweep earns (docs/reference/exit-codes.md)."""
    if result.missing and (interrupted or result.interrupted):
        return ExitCode.INTERRUPTED
    if result.failures or result.missing:
        return ExitCode.STOPPED
    if all(record.status == "infeasible" for record in result.records):
        return ExitCode.INFEASIBLE
    return ExitCode.FOUND


def _check_groups(plan: Plan, group_by: tuple[str, ...]) -> None:
    known = list(dict.fromkeys(name for item in plan.items for name in item.settings))
    for name in group_by:
        if name not in known:
            raise UsageError(
                f"{name!r} is no setting of this sweep{near_miss(name, known)}; settings: {listed(known)}",
                field="--group-by",
            )


def _planned(file: str, format_: str, *, verbose: bool) -> int:
    from mapsearch.reports.flat import csv_text
    from mapsearch.reports.sweeps import plan_lines
    from mapsearch.sweeps.run import plan_of
    from mapsearch.sweeps.settings import shown

    plan = plan_of(file)
    for text in plan.remarks:
        print(f"mapsearch: {text}", file=sys.stderr)
    data = [{"key": item.key, "settings": item.settings} for item in plan.items]
    if format_ == "csv":
        names = dict.fromkeys(name for item in plan.items for name in item.settings)
        rows = [{"key": item.key, **{name: shown(item.settings.get(name)) for name in names}} for item in plan.items]
        write_text(csv_text(rows), None)
    else:
        emit_view(lambda width: plan_lines(plan, width=width, verbose=verbose), data, format_=format_, output=None)
    return ExitCode.FOUND


def _show(
    result: SweepResult, group_by: tuple[str, ...], rank_by: str, format_: str, *, quiet: bool, verbose: bool
) -> None:
    from mapsearch.reports.flat import csv_text
    from mapsearch.reports.sweeps import default_groups, sweep_data, sweep_lines, sweep_records

    groups = list(group_by) or default_groups(result)
    if format_ == "csv":
        write_text(csv_text(sweep_records(result)), None)
    elif format_ == "json":
        write_text(json.dumps(sweep_data(result, groups, rank_by), indent=2, ensure_ascii=False) + "\n", None)
    else:
        emit_view(
            lambda width: sweep_lines(result, groups, rank_by, width=width, verbose=verbose),
            None, format_=format_, output=None,
        )  # fmt: skip
        if not quiet:
            print(f"results: {Path(result.folder)}", file=sys.stderr)
