"""Alpha and bandwidth of a collective from its log, and what they are in the terms of a profile.

Contents: Piece, CollectiveFit, LevelTerms, fit_collective, level_terms, level_rate, efficiency, separate.

`T = alpha + S * factor / B` (FORMULAS 4.1) in log time, so that a row of 10 us weighs as one of 10 ms. One line seldom
fits ten decades (the library changes protocol and algorithm with the size): `pieces` are the lines that do, `usable` is
the widest range up to the largest message that one line fits. How many bytes and latencies a level is charged with is
asked of `costs.collectives`, so an estimate with the fitted numbers gives the measured times back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from mapsearch.calibration.columns import bus_factor
from mapsearch.calibration.lines import Line, best_pieces, usable_start
from mapsearch.calibration.nccl import CollectiveLog
from mapsearch.calibration.robust import robust_fit
from mapsearch.costs import collectives
from mapsearch.errors import InputError, MissingFact
from mapsearch.inventories.profile import CollectiveEfficiency, Profile, Rings, Saturation
from mapsearch.quantity import Floats
from mapsearch.topologies.fabric import Device, Fabric, Level
from mapsearch.units import BYTES, TIME, render

Side = Literal["inside", "across"]
Place = Literal["out-of-place", "in-place"]
PROFILE_FIELDS = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "all_gather",
    "all_to_all": "all_to_all", "send_receive": "point_to_point",
}  # fmt: skip
"""The field of a profile that an operation's log measures."""
LOGGED_RINGS: Rings = "flat"
"""What nccl-tests and rccl-tests measure: rings through the whole group."""
TOLERANCE = 0.15
"""Largest residual of any row in the usable range."""
_TOLD = 0.3
"""Largest relative standard error of a number that is said to be told by a log."""
_NEEDED = 0.05
"""A start-up cost without which a row is worse by this much is told, however wide its standard error."""
_FEWEST = 3
"""Rows from which an alpha is told: any two lie on a line."""
_ABOVE = 1.02
"""How far above the datasheet a bandwidth may come out by rounding."""
_RACKS = ("GB200", "GB300", "Graphics Device")
"""Devices whose high-bandwidth domain spans hosts, so that several hosts do not mean another level."""
_BOUNDLESS = 1e30


@dataclass(frozen=True)
class Piece:
    """One line through the rows of a range of sizes."""

    least_bytes: float
    most_bytes: float
    rows: int
    alpha_s: float
    alpha_told: bool
    """False where the rows are all too large to show a start-up cost."""
    seconds_per_byte: float
    """Of the size column."""
    bandwidth_told: bool
    """False where the rows are all too small to show a bandwidth."""
    residual: float
    """Median relative residual, absolute."""
    worst: float


@dataclass(frozen=True)
class CollectiveFit:
    """The fit of one log."""

    file: str
    operation: str
    ranks: int | None
    ranks_per_node: int | None
    level: Side | None
    place: Place
    whole: Piece
    pieces: tuple[Piece, ...]
    usable: Piece | None
    notes: tuple[str, ...]

    @property
    def nodes(self) -> int | None:
        """Domains that took part."""
        return self.ranks // self.ranks_per_node if self.ranks and self.ranks_per_node else None

    @property
    def best(self) -> Piece:
        """The line that a profile takes: of the usable range where there is one."""
        return self.usable or self.whole

    def bus_bytes_per_s(self, piece: Piece) -> float:
        """Bus bandwidth of a piece, as nccl-tests counts it."""
        return (bus_factor(self.operation, self.ranks) if self.ranks else 1.0) / piece.seconds_per_byte


@dataclass(frozen=True)
class LevelTerms:
    """T = launch + latencies * latency + (halves * half_bytes + bytes * S) / rate, as the cost model charges it."""

    bytes: float
    latencies: float
    halves: float


def fit_collective(
    log: CollectiveLog, *, level: Side | None = None, place: Place = "out-of-place", least_bytes: float = 0.0
) -> CollectiveFit:
    """Fit a log. Raises InputError when no row is left, BackendMissing without scipy."""
    sizes, times, notes = _samples(log, place, least_bytes)
    lines = best_pieces(sizes, times)
    pieces = tuple(_piece(sizes[begin:end], times[begin:end]) for begin, end in lines)
    whole = _piece(sizes, times)
    start = usable_start(sizes, times, TOLERANCE)
    usable = _piece(sizes[start:], times[start:]) if start is not None else None
    side, side_notes = _side(log, level)
    found = CollectiveFit(
        log.file, log.operation, log.ranks, log.ranks_per_node, side, place, whole, pieces, usable, ()
    )
    return replace(found, notes=(*log.notes, *notes, *side_notes, *_remarks(found)))


def _samples(log: CollectiveLog, place: Place, least_bytes: float) -> tuple[Floats, Floats, list[str]]:
    notes = []
    rows = [row for row in log.rows if row.size_bytes >= least_bytes]
    chosen = [(row.size_bytes, row.in_place if place == "in-place" else row.out_of_place) for row in rows]
    points = sorted((size, half.time_s) for size, half in chosen if half is not None)
    if not points:
        raise InputError(
            f"has no {place} time of a message of at least {least_bytes:,.0f} bytes; choose another --place or size",
            file=log.file,
        )
    both = [row.in_place.time_s / row.out_of_place.time_s for row in rows if row.in_place and row.out_of_place]
    middle = float(np.median(both)) if both else 1.0
    if abs(middle - 1.0) > 0.05:
        way = "faster" if middle < 1.0 else "slower"
        notes.append(f"in-place is {abs(middle - 1.0):.0%} {way} in the middle row; {place} was fitted (--place)")
    sizes, times = np.asarray(points, dtype=np.float64).T
    return sizes, times, notes


def _piece(sizes: Floats, times: Floats) -> Piece:
    """A robust line through some rows, with what it cannot tell."""
    if len(np.unique(sizes)) == 1:
        return _proportional(sizes, times)
    line = Line.through(sizes, times)
    unit = float(np.min(times))
    logs = np.log(times)

    def residuals(values: Floats) -> Floats:
        return np.asarray(np.log(values[1] * unit + np.exp(values[0]) * sizes) - logs)

    least = 1e-6 * unit / float(np.max(sizes))
    start = (math.log(max(line.slope, least)), max(line.alpha / unit, 1e-6))
    fit = robust_fit(residuals, start, lower=(math.log(least) - 1.0, 0.0), upper=(math.log(line.steepest) + 1.0, 10.0))
    alpha, slope = float(fit.values[1]) * unit, math.exp(float(fit.values[0]))
    off = np.abs(fit.residuals)
    alpha_told = len(sizes) >= _FEWEST and bool(fit.values[1] > 1e-4 and fit.errors[1] <= _TOLD * fit.values[1])
    if not alpha_told and fit.errors[0] <= _TOLD:
        alone = _proportional(sizes, times)
        if len(sizes) < _FEWEST or alone.worst <= float(np.max(off)) + _NEEDED:
            return alone
        alpha_told = True
    return Piece(
        least_bytes=float(sizes[0]),
        most_bytes=float(sizes[-1]),
        rows=len(sizes),
        alpha_s=alpha,
        alpha_told=alpha_told,
        seconds_per_byte=slope,
        bandwidth_told=bool(fit.errors[0] <= _TOLD),
        residual=float(np.median(off)),
        worst=float(np.max(off)),
    )


def _proportional(sizes: Floats, times: Floats) -> Piece:
    """Rows that show no start-up cost: time over size alone, so that the bandwidth gives these times back."""
    slope = float(np.exp(np.median(np.log(times / sizes))))
    off = np.abs(np.log(times / (slope * sizes)))
    return Piece(
        float(sizes[0]),
        float(sizes[-1]),
        len(sizes),
        0.0,
        False,
        slope,
        True,
        float(np.median(off)),
        float(np.max(off)),
    )


def _side(log: CollectiveLog, level: Side | None) -> tuple[Side | None, list[str]]:
    """Where the log ran: asked for, or one host, or several hosts of devices whose domain is one host."""
    if level is not None or log.ranks is None:
        return level, []
    if log.ranks_per_node == log.ranks:
        return "inside", []
    if log.ranks_per_node is not None and not any(name in device for device in log.devices for name in _RACKS):
        return "across", ["several hosts: taken as traffic across domains (--level inside, if the domain spans them)"]
    return None, ["the log does not say whether its ranks share one domain; give --level inside or across"]


def _remarks(fit: CollectiveFit) -> list[str]:
    """What this log cannot tell."""
    best, notes = fit.best, []
    if best.least_bytes == best.most_bytes:
        notes.append("one message size: alpha and bandwidth cannot be told apart; alpha was taken as 0")
    elif not best.bandwidth_told:
        notes.append("all messages are too small to show a bandwidth: only the start-up cost is told")
    elif not best.alpha_told:
        why = "two sizes lie on any line" if best.rows < _FEWEST else "all messages are too large to show it"
        notes.append(f"the start-up cost is not told ({why}) and was taken as 0: the bandwidth is the least it can be")
    else:
        notes.append(
            "launch, latency per step and half_bytes all add to alpha; logs of other numbers of ranks tell them apart"
        )
    if fit.level == "across" and fit.ranks_per_node and fit.nodes == 2 and fit.operation == "all_reduce":
        through = fit.bus_bytes_per_s(best) / fit.ranks_per_node / 1e9
        notes.append(
            f"a ring over all ranks would carry {through:.4g} GB/s per device across; the cost model counts the array "
            "once, as the tree that NCCL takes between two nodes sends it"
        )
    if fit.usable is None:
        notes.append(f"no range of three sizes up to the largest is within {TOLERANCE:.0%} of one line")
    return notes


def _dummy(operation: str, half_bytes: float) -> Profile:
    curve = Saturation(peak=1.0)
    efficiency = CollectiveEfficiency.model_validate({"peak": 1.0, "half_bytes": render(half_bytes, BYTES)})
    return Profile.model_validate(
        {"name": operation, "gemm": curve, "grouped_gemm": curve, "attention_forward": curve,
         "attention_backward": curve, "memory_bandwidth": 1.0, "all_reduce": efficiency, "all_gather": efficiency,
         "all_to_all": efficiency, "point_to_point": efficiency, "rings": LOGGED_RINGS, "runtime_bytes": "0 B",
         "communicator_bytes": "0 B"}
    )  # fmt: skip


def level_terms(
    operation: str, ranks: int, *, level: Side, ranks_per_node: int | None = None, in_network: bool = False
) -> LevelTerms:
    """Bytes, latencies and half-messages that the cost model charges to the level a log ran on.

    Across: groups of `ranks_per_node` below the level, whose own links are taken as free; rings as NCCL has them.
    Raises MissingFact.
    """
    if level == "across" and ranks_per_node is None:
        raise MissingFact(
            "traffic across nodes depends on how many ranks share a node; give --ranks-per-node", field=operation
        )
    inner = ranks_per_node if level == "across" and ranks_per_node else 1
    row = np.array([inner, ranks // inner])
    functions = {
        "all_reduce": collectives.all_reduce_s,
        "all_gather": collectives.all_gather_s,
        "reduce_scatter": collectives.reduce_scatter_s,
        "all_to_all": collectives.all_to_all_s,
        "send_receive": collectives.point_to_point_s,
    }
    price = functions[operation]

    def seconds(payload: float, rate: float, latency: float, half_bytes: float) -> float:
        below = Level("below", "switch", int(row[0]), _BOUNDLESS, 0.0)
        measured = Level("measured", "switch", int(row[1]), rate, latency, in_network_reduction=in_network)
        fabric = Fabric("log", Device("any", 0.0, 1.0, {}), (below, measured))
        return float(price(payload, row, fabric=fabric, profile=_dummy(operation, half_bytes)))

    return LevelTerms(seconds(1.0, 1.0, 0.0, 0.0), seconds(0.0, _BOUNDLESS, 1.0, 0.0), seconds(0.0, 1.0, 0.0, 1.0))


def level_rate(fit: CollectiveFit, piece: Piece, *, in_network: bool = False) -> float | None:
    """Bytes per second and device that a piece reached on its level; None where the level or ranks are not known."""
    if fit.level is None or fit.ranks is None or fit.operation not in PROFILE_FIELDS or not piece.bandwidth_told:
        return None
    if fit.level == "across" and fit.ranks_per_node is None:
        return None
    terms = level_terms(
        fit.operation, fit.ranks, level=fit.level, ranks_per_node=fit.ranks_per_node, in_network=in_network
    )
    return terms.bytes / piece.seconds_per_byte if terms.bytes > 0 else None


def efficiency(
    fit: CollectiveFit, bandwidth: float, *, latency_s: float | None = None, in_network: bool = False
) -> CollectiveEfficiency:
    """The fit as a share of the level's datasheet bandwidth (bytes per second and device, one way).

    With the level's latency, `launch` is what alpha has beyond the latencies that the cost model adds itself; without
    it, and where alpha is not told, launch stays 0. Raises InputError.
    """
    rate = level_rate(fit, fit.best, in_network=in_network)
    if rate is None:
        raise MissingFact(_why_no_rate(fit), file=fit.file)
    share = rate / bandwidth
    if share > _ABOVE:
        hint = (
            "; if the level reduces in the network (NVLS, SHARP), say so with --in-network-reduction"
            if fit.operation == "all_reduce" and not in_network
            else ""
        )
        raise InputError(
            f"{rate / 1e9:.4g} GB/s per device is {share:.2f} times the bandwidth that was given "
            f"({bandwidth / 1e9:.4g} GB/s one way); give that of this level, one way{hint}",
            file=fit.file,
            field=fit.operation,
        )
    launch = 0.0
    if latency_s is not None and fit.best.alpha_told and fit.ranks and fit.level:
        terms = level_terms(
            fit.operation, fit.ranks, level=fit.level, ranks_per_node=fit.ranks_per_node, in_network=in_network
        )
        launch = max(0.0, fit.best.alpha_s - terms.latencies * latency_s)
    return CollectiveEfficiency.model_validate({"peak": min(share, 1.0), "launch": render(launch, TIME)})


def _why_no_rate(fit: CollectiveFit) -> str:
    if fit.operation not in PROFILE_FIELDS:
        return (
            f"{fit.operation.replace('_', '-')} is not charged by the cost model, so no profile field follows from it"
        )
    if not fit.best.bandwidth_told:
        return "its messages are too small to show a bandwidth"
    if fit.level is None:
        return "the log does not say whether its ranks share one domain; give --level inside or across"
    if fit.ranks is None:
        return "the log does not say how many ranks ran; give --ranks"
    return "traffic across nodes depends on how many ranks share a node; give --ranks-per-node"


def separate(fits: Sequence[CollectiveFit]) -> tuple[float, float] | None:
    """Launch, and cost per latency step, from logs of one operation and level with different numbers of ranks.

    alpha = launch + latencies * cost, by non-negative least squares of relative residuals. A latency of the level and
    half_bytes have the same steps in a ring; of an all-to-all the cost is per peer, so it is half_bytes / rate.
    None with fewer than two numbers of ranks, or where alpha is not told.
    """
    told = [fit for fit in fits if fit.best.alpha_told and fit.ranks and fit.level]
    if len({fit.ranks for fit in told}) < 2 or len({(fit.operation, fit.level) for fit in told}) != 1:
        return None
    steps = []
    for fit in told:
        assert fit.ranks is not None and fit.level is not None
        if fit.level == "across" and fit.ranks_per_node is None:
            return None
        terms = level_terms(fit.operation, fit.ranks, level=fit.level, ranks_per_node=fit.ranks_per_node)
        steps.append(terms.halves if fit.operation == "all_to_all" else terms.latencies)
    alphas, counts = np.array([fit.best.alpha_s for fit in told]), np.array(steps)
    if np.ptp(counts) == 0.0:
        return None
    unit = float(np.min(alphas))

    def residuals(values: Floats) -> Floats:
        return np.asarray(np.log(np.maximum(values[0] + values[1] * counts, 1e-12)) - np.log(alphas / unit))

    found = robust_fit(residuals, (0.5, 0.5 / float(np.max(counts))), lower=(0.0, 0.0), upper=(np.inf, np.inf))
    return float(found.values[0]) * unit, float(found.values[1]) * unit
