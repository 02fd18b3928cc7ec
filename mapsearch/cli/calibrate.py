"""`mapsearch calibrate`: the numbers of a profile from measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli.options import check_output, output_file, view_format
from mapsearch.cli.render import emit_view, write_text
from mapsearch.errors import InputError, UsageError

if TYPE_CHECKING:
    from mapsearch.units import Dimension

_format = view_format("table", "json", help_="How to show the fit.")
_output = output_file("Write the measured part of a profile to FILE (YAML).")


@click.group("calibrate", short_help="Fit the numbers of a profile to measurements.")
def command() -> None:
    """Fit the numbers of a profile to measurements: collectives, matrix products, whole steps."""


@command.command("collectives")
@click.argument("logs", metavar="LOG...", type=click.Path(), nargs=-1, required=True)
@click.option("--bandwidth", metavar="RATE", help='Datasheet bandwidth of the level, per device, one way: "450 GB/s".')
@click.option(
    "--level", type=click.Choice(("inside", "across")),
    help="Whether the ranks share one high-bandwidth domain.  [default: as the hosts of the log say]",
)  # fmt: skip
@click.option("--latency", metavar="TIME", help='Latency of the level in the topology: "3 us". The rest is launch.')
@click.option("--operation", metavar="NAME", help="Which collective ran (all-gather, ...), where the log does not say.")
@click.option("--ranks", type=click.IntRange(2, 2**24), metavar="N", help="How many ranks ran, when the log is silent.")
@click.option("--ranks-per-node", type=click.IntRange(1, 4096), metavar="N", help="Ranks that share one domain.")
@click.option(
    "--place", type=click.Choice(("out-of-place", "in-place")), default="out-of-place", show_default=True,
    help="Which half of the table is fitted.",
)  # fmt: skip
@click.option("--from-size", metavar="BYTES", help='Leave out smaller messages: "64 KB".')
@click.option("--in-network-reduction", is_flag=True, help="The level adds in its switches (NVLS, SHARP).")
@_format
@_output
def collectives_command(
    logs: tuple[str, ...],
    bandwidth: str | None,
    level: Any,
    latency: str | None,
    operation: str | None,
    ranks: int | None,
    ranks_per_node: int | None,
    place: Any,
    from_size: str | None,
    in_network_reduction: bool,
    format_: str,
    output: str | None,
) -> None:
    """Fit start-up cost and bandwidth to logs of nccl-tests or rccl-tests.

    Bus bandwidth is as nccl-tests counts it; the level's is what a device moves over the level by the cost model's
    count. With --bandwidth both become shares for a profile. A log that cannot be used says why; when none can, exit 2.
    """
    from mapsearch.calibration.alpha_beta import fit_collective
    from mapsearch.calibration.nccl import read_logs
    from mapsearch.calibration.parts import collective_part
    from mapsearch.reports.calibration import collectives_data, collectives_lines
    from mapsearch.units import BYTES, RATE, TIME

    check_output(output)
    rate = _quantity("--bandwidth", bandwidth, RATE)
    latency_s = _quantity("--latency", latency, TIME)
    least = _quantity("--from-size", from_size, BYTES) or 0.0
    if rate == 0.0:
        raise UsageError("is 0; give the level's bandwidth", field="--bandwidth")
    if output is not None and rate is None:
        raise UsageError("a profile holds shares of the datasheet bandwidth; give --bandwidth", field="--output")
    fits, refused = [], []
    for file in logs:
        try:
            found, problems = read_logs(file, operation=operation, ranks=ranks, ranks_per_node=ranks_per_node)
            refused += problems
            fits += [fit_collective(log, level=level, place=place, least_bytes=least) for log in found]
        except InputError as problem:
            refused.append(problem)
    if not fits:
        raise _joined(refused)
    part = None if rate is None else collective_part(fits, rate, latency_s=latency_s, in_network=in_network_reduction)
    data = collectives_data(fits, refused, part, in_network=in_network_reduction)
    emit_view(
        lambda width: collectives_lines(fits, refused, part, width=width, in_network=in_network_reduction),
        data, format_=format_, output=None,
    )  # fmt: skip
    _write_part(part, output)


@command.command("gemm")
@click.argument("file", metavar="FILE", type=click.Path())
@click.option("--peak", metavar="RATE", required=True, help='Dense datasheet peak of the number format: "989 TFLOP/s".')
@click.option("--dtype", metavar="NAME", help="Which number format of the file, where it has several.")
@_format
@_output
def gemm_command(file: str, peak: str, dtype: str | None, format_: str, output: str | None) -> None:
    """Fit a saturation curve to timings of matrix products (CSV or YAML).

    Columns: m (rows, tokens), n, k, dtype, and a time or a rate whose unit is in its name: seconds, time_ms, time_us or
    tflops. Rates above the peak are refused.
    """
    from mapsearch.calibration.gemm import fit_saturation, read_timings
    from mapsearch.calibration.parts import gemm_part
    from mapsearch.reports.calibration import gemm_data, gemm_lines
    from mapsearch.units import FLOPS

    check_output(output)
    rate = _quantity("--peak", peak, FLOPS)
    if not rate:
        raise UsageError("is 0; give the dense peak of the number format", field="--peak")
    fit = fit_saturation(read_timings(file), peak_flops=rate, dtype=dtype, file=file)
    part = gemm_part(fit)
    emit_view(lambda width: gemm_lines(fit, part, width=width), gemm_data(fit, part), format_=format_, output=None)
    _write_part(part, output)


@command.command("steps")
@click.argument("file", metavar="FILE", type=click.Path())
@_format
@output_file("Write the fitted profile to FILE (YAML), ready for --profile.")
def steps_command(file: str, format_: str, output: str | None) -> None:
    """Fit a profile to step times of your own (YAML: mappings and how long a step took).

    The file names model, run and topology, once or per step, and lists steps, each with a mapping and a step_time. The
    fit starts from the profile that `solve` would use. Shown is how far off each step was before, is in the fit, and
    is when the fit does not see it.
    """
    from mapsearch import documents
    from mapsearch.calibration.steps import fit_steps, read_steps
    from mapsearch.reports.fits import steps_data, steps_lines

    check_output(output)
    found = fit_steps(read_steps(file), file=file)
    emit_view(lambda width: steps_lines(found, width=width), steps_data(found), format_=format_, output=None)
    if output is not None:
        write_text(documents.dump(found.profile.model_dump(mode="json", exclude_defaults=True)), output)


@command.command("rows")
@click.argument("folder", metavar="FOLDER", type=click.Path())
@click.option("--rounds", type=click.IntRange(1, 50), default=8, show_default=True, help="Rounds of the fit.")
@output_file("Write the fit to FILE (YAML).")
@_format
def rows_command(folder: str, rounds: int, output: str | None, format_: str) -> None:
    """Fit the profiles to a folder of measured training runs (rows as in benchmarks/published/SCHEMA.md).

    One set of factors on the built-in profiles is shared by all rows; device, framework family and year of the software
    add to it, each held towards nothing. Shown beside the fit is the error of each source when it is left out.
    """
    from pathlib import Path

    from mapsearch.calibration.allocator import fit_fragmentation, held
    from mapsearch.calibration.fit import fit, held_out, observations
    from mapsearch.calibration.rows import load_cases
    from mapsearch.calibration.shipped import written
    from mapsearch.reports.fits import rows_data, rows_lines

    check_output(output)
    cases, refused = load_cases(Path(folder))
    counted = [case for case in cases if case.groups.quality != "C"]
    rows = observations(counted)
    if not rows:
        raise InputError("holds no row with a step time on a device that has a profile", file=folder)
    fitted, table = fit(rows, rounds=rounds)
    left_out = held_out(rows, fitted, table, lambda row: row.case.groups.source)
    memory = fit_fragmentation(held(counted))
    data = rows_data(rows, fitted, table[:, 0], left_out, refused, memory)
    emit_view(lambda width: rows_lines(data, width=width), data, format_=format_, output=None)
    if output is not None:
        write_text(written(fitted, rows, left_out, memory), output)


def _quantity(option: str, text: str | None, dimension: Dimension) -> float | None:
    from mapsearch.units import parse

    if text is None:
        return None
    try:
        return parse(text, dimension)
    except ValueError as problem:
        raise UsageError(str(problem), field=option) from None


def _joined(problems: list[InputError]) -> InputError:
    """One error for all logs: the reason of the first, and how many more there are."""
    first, more = problems[0], len(problems) - 1
    if not more:
        return first
    return InputError(f"{first.problem}; {more} more cannot be used either", file=first.file, field=first.field)


def _write_part(part: dict[str, Any] | None, output: str | None) -> None:
    from mapsearch import documents

    if part is not None and output is not None:
        write_text(documents.dump(part), output)
