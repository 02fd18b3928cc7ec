"""Fits of measurements as data and as tables.

Contents: collectives_data, collectives_lines, gemm_data, gemm_lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.text import Text

from mapsearch.calibration.alpha_beta import CollectiveFit, Piece, level_rate, separate
from mapsearch.calibration.gemm import GemmFit
from mapsearch.errors import InputError
from mapsearch.reports import human
from mapsearch.reports.layout import Column, flowed, grid, section

COLLECTIVES_SCHEMA = "mapsearch.calibration-collectives/1"
GEMM_SCHEMA = "mapsearch.calibration-gemm/1"
_LONGEST_NAME = 34
_FEW = 3


def collectives_data(
    fits: Sequence[CollectiveFit], refused: Sequence[InputError], part: dict[str, Any] | None, *, in_network: bool
) -> dict[str, Any]:
    """Plain data for JSON."""
    return {
        "schema": COLLECTIVES_SCHEMA,
        "logs": [_fit_data(fit, in_network) for fit in fits],
        "refused": [{"file": problem.file, "reason": problem.problem} for problem in refused],
        "profile": part,
    }


def _fit_data(fit: CollectiveFit, in_network: bool) -> dict[str, Any]:
    def of(piece: Piece) -> dict[str, Any]:
        rate = fit.bus_bytes_per_s(piece) if piece.bandwidth_told else None
        return {
            **asdict(piece),
            "bus_bytes_per_s": rate,
            "level_bytes_per_s": level_rate(fit, piece, in_network=in_network),
        }

    return {
        "file": fit.file,
        "operation": fit.operation,
        "ranks": fit.ranks,
        "ranks_per_node": fit.ranks_per_node,
        "level": fit.level,
        "place": fit.place,
        "whole": of(fit.whole),
        "pieces": [of(piece) for piece in fit.pieces],
        "usable": of(fit.usable) if fit.usable else None,
        "notes": list(fit.notes),
    }


def collectives_lines(
    fits: Sequence[CollectiveFit],
    refused: Sequence[InputError],
    part: dict[str, Any] | None,
    *,
    width: int,
    in_network: bool,
) -> list[Text]:
    """One line per log, its ranges of sizes where there are several, then remarks and what was refused."""
    lines = grid(_columns([(fit, fit.best) for fit in fits], in_network)) if fits else []
    for fit in fits:
        if len(fit.pieces) > 1:
            table = _columns([(fit, piece) for piece in fit.pieces], in_network)[4:]
            lines += section(f"{_name(fit.file)} by size", grid(table, indent=2), width=width)
    lines += section("Several numbers of ranks", _separated(fits, width), width=width)
    lines += section("Remarks", _remarks(fits, width), width=width)
    reasons = [flowed(str(problem), width=width, indent=2, style="yellow") for problem in refused]
    lines += section("Not used", [line for reason in reasons for line in reason], width=width)
    return lines + section("In a profile", _part_lines(part or {}, width), width=width)


def _separated(fits: Sequence[CollectiveFit], width: int) -> list[Text]:
    """What logs of one operation and level tell together."""
    groups: dict[tuple[str, str], list[CollectiveFit]] = {}
    for fit in fits:
        groups.setdefault((fit.operation, str(fit.level)), []).append(fit)
    lines = []
    for (operation, level), members in groups.items():
        if parts := separate(members):
            of = "peer (half_bytes over the bandwidth)" if operation == "all_to_all" else "step (latency of the level)"
            said = f"launch {human.seconds(parts[0])}, and {human.seconds(parts[1])} per {of}"
            lines += flowed(f"{operation.replace('_', '-')} {level}: {said}", width=width, indent=2)
    return lines


def _remarks(fits: Sequence[CollectiveFit], width: int) -> list[Text]:
    """Each remark once, with the logs that it is about."""
    about: dict[str, list[str]] = {}
    for fit in fits:
        for note in fit.notes:
            about.setdefault(note, []).append(_name(fit.file))
    lines = []
    for note, names in about.items():
        more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
        lines += flowed(f"{note} ({', '.join(names[:_FEW])}{more})", width=width, indent=2)
    return lines


def _columns(pairs: Sequence[tuple[CollectiveFit, Piece]], in_network: bool) -> list[Column]:
    def rate(value: float | None) -> str:
        return "-" if value is None else f"{value / 1e9:,.4g}"

    return [
        Column("log", [_name(fit.file) for fit, _ in pairs], left=True),
        Column("operation", [fit.operation.replace("_", "-") for fit, _ in pairs], left=True),
        Column("ranks", ["-" if fit.ranks is None else f"{fit.ranks:,}" for fit, _ in pairs]),
        Column("level", [fit.level or "-" for fit, _ in pairs], left=True),
        Column("sizes", [_sizes(piece) for _, piece in pairs], left=True),
        Column("rows", [str(piece.rows) for _, piece in pairs]),
        Column("alpha", [human.seconds(piece.alpha_s) if piece.alpha_told else "-" for _, piece in pairs]),
        Column("bus GB/s", [rate(f.bus_bytes_per_s(p)) if p.bandwidth_told else "-" for f, p in pairs]),
        Column("level GB/s", [rate(level_rate(fit, piece, in_network=in_network)) for fit, piece in pairs]),
        Column("residual", [_share(piece, piece.residual) for _, piece in pairs]),
        Column("worst", [_share(piece, piece.worst) for _, piece in pairs]),
    ]


def _share(piece: Piece, residual: float) -> str:
    return "-" if piece.rows == 1 else f"{residual:.1%}"


def _name(file: str) -> str:
    name = Path(file).name
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def _sizes(piece: Piece) -> str:
    least, most = human.amount(piece.least_bytes), human.amount(piece.most_bytes)
    return least if least == most else f"{least} to {most}"


def _part_lines(part: dict[str, Any], width: int) -> list[Text]:
    lines: list[Text] = []
    for name, fields in part.items():
        single = {name: fields} if "value" in fields else {f"{name}.{field}": said for field, said in fields.items()}
        for field, said in single.items():
            lines += flowed(f"{field}: {said['value']} ({said['note']})", width=width, indent=2)
    return lines


def gemm_data(fit: GemmFit, part: dict[str, Any]) -> dict[str, Any]:
    """Plain data for JSON."""
    curve = fit.curve.model_dump(mode="json", exclude={"sources"})
    return {"schema": GEMM_SCHEMA, **asdict(fit), "curve": curve, "notes": list(fit.notes), "profile": part}


def gemm_lines(fit: GemmFit, part: dict[str, Any], *, width: int) -> list[Text]:
    """The curve, its residuals, and remarks."""
    of = f" of {fit.dtype}" if fit.dtype else ""
    residuals = (fit.residual, fit.percentile_90, fit.worst)
    middle, most, worst = (f"{value:.1%}" for value in residuals)
    said = f"{fit.rows} timings{of}; best {fit.best_share:.1%} of the peak; residual {middle} in the median"
    text = f"{_name(fit.file)}: {said}, {most} at the 90th percentile, {worst} at worst ({fit.worst_place})"
    lines = flowed(text, width=width)
    for note in fit.notes:
        lines += flowed(note, width=width, style="yellow")
    return lines + section("In a profile", _part_lines(part, width), width=width)
