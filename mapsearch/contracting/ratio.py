"""The ratio of expert compute to expert communication, from peaks and from what is reached, one per level (F1.6).

Contents: RATIOS, ratio_rows.

From peaks it screens: how large f, or the bandwidth, has to be. From measured efficiencies, with what padding, skew and
de-duplication multiply, it finds the gap. If the GEMM runs the padding too, both sides grow and the ratio stays, while
the time does not.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mapsearch.contract import Row
from mapsearch.contracting.case import ContractCase, Text
from mapsearch.contracting.wire import level_facts, traffic_of
from mapsearch.costs import communication, compute, routing, volumes
from mapsearch.costs.estimate import number

PEAKS = "bandwidth of one device on this level one way, and peak FLOP/s, from datasheets"
REACHED = "seconds of the grouped GEMMs, and of dispatch and combine, of one layer, forward, on the busiest rank"
RATIOS = {
    "peak": Text(
        "Rcc from peaks at this level's bandwidth, all ranks: 6 f/(e_d+e_c) B/F n/(n-1)",
        "ratio",
        "6 f / (e_d + e_c) times bandwidth over peak times n / (n - 1)",
    ),
    "peak_endless": Text(
        "the same for endless groups: n -> infinity", "ratio", "6 f / (e_d + e_c) times bandwidth over peak"
    ),
    "peak_level": Text(
        "Rcc from peaks with only the bytes that cross this level, (R - g)/R of them",
        "ratio",
        "the endless ratio over the share of the ranks outside one unit below this level",
    ),
    "balanced_ffn": Text(
        "expert FFN width at which the endless ratio is 1 on this level", "columns", "f over the endless ratio"
    ),
    "link_efficiency": Text(
        "eta_link: bytes that cross this level over seconds and its bandwidth",
        "ratio",
        "bytes on the device's links of this level over the seconds of dispatch and combine",
        "time",
    ),
    "communication_multiplier": Text(
        "bytes that cross this level over the even, unpadded, undeduplicated ones",
        "ratio",
        "bytes on the links of this level over (e_d + e_c) tau K h (R - g)/R",
        "model",
    ),
    "reached": Text(
        "Rcc from efficiencies and multipliers, this level alone: seconds of experts over its seconds",
        "ratio",
        "peak_level times (eta_link / eta_gemm) times compute over communication multiplier",
        "time",
    ),
}
"""What is told of every level that EP crosses."""


def ratio_rows(case: ContractCase) -> list[Row]:
    """FLOP and seconds of the experts of one layer, and both ratios for every level that EP crosses."""
    told = _work(case)
    for place in range(len(case.fabric.levels)):
        share = _share(case, place)
        if share:
            told += _level_rows(case, place, share)
    return told


def _share(case: ContractCase, place: int) -> float:
    """Share of the EP ranks that are outside one unit of the level below: (R - g)/R. Source: F1.6."""
    inside = 1
    for cut in case.point.rows["ep"][:place]:
        inside *= int(cut)
    return 1.0 - inside / case.mapping.ep


def _seconds(case: ContractCase) -> float:
    mapping = case.mapping
    grid = (case.tokens, mapping.etp, mapping.ep, int(mapping.dispatcher))
    return number(compute.routed_experts_s(*grid, **case.told))


def _flops(case: ContractCase) -> float:
    """Balanced work of one rank: 2 FLOP per weight and assignment."""
    moe = routing.routed(case.model)
    return 2.0 * case.model.ffn_matrices * case.tokens * moe.top_k * case.model.hidden * moe.expert_ffn


def _multiplier(case: ContractCase) -> float:
    mapping, told = case.mapping, case.shaped
    return number(routing.routed_amplification(case.tokens, mapping.ep, int(mapping.dispatcher), **told))


def _work(case: ContractCase) -> list[Row]:
    row = partial(
        case.row,
        domain=5,
        origins=["model.hidden", "model.moe.expert_ffn", "model.moe.top_k", "mapping.ep", "mapping.etp"],
        record=REACHED,
    )
    return [
        row(
            "ep.expert_flops",
            meaning="FLOP of the routed experts of one layer on one rank, forward, balanced",
            predicted=_flops(case),
            unit="FLOP",
            formula="F1.6, F3.2",
            compute="rows, widths and count of the grouped GEMMs: 2 M N K each",
        ),
        row(
            "ep.compute_multiplier",
            meaning="rows of the busiest rank over its even share: skew, or padding that the GEMM runs too",
            predicted=_multiplier(case),
            unit="ratio",
            formula="F1.6",
            kind="model",
            compute="rows of the grouped GEMMs over N_src K",
        ),
        row(
            "ep.expert_s",
            meaning="grouped GEMMs of one layer, forward, on the busiest rank",
            predicted=_seconds(case),
            unit="s",
            formula="F3.2",
            kind="time",
            compute="sum of the kernels' seconds of one layer",
            factors={"ep.expert_flops": 1, "ep.compute_multiplier": 1, "ep.gemm_efficiency": -1},
        ),
        row(
            "ep.gemm_efficiency",
            meaning="eta_gemm: FLOP of the grouped GEMMs over seconds and peak",
            predicted=_flops(case) * _multiplier(case) / (_seconds(case) * _peak(case)),
            unit="share",
            formula="F1.6",
            kind="time",
            compute="2 M N K of all products over their seconds and the peak of the run's format",
        ),
    ]


def _peak(case: ContractCase) -> float:
    return case.fabric.device.peak(case.run.linear_format)


def _level_rows(case: ContractCase, place: int, share: float) -> list[Row]:
    """Both ratios of one level, and what lies between them."""
    level, ranks = case.fabric.levels[place], float(case.mapping.ep)
    crossing = traffic_of(case.point, place).layer["ep"][0]
    endless, reached = _endless(case, level.bytes_per_s), _reached_s(case, place)
    model = case.model
    valid = sum(_widths(case)) * case.tokens * routing.routed(model).top_k * model.hidden * share
    values = {
        "peak": endless * ranks / (ranks - 1.0),
        "peak_endless": endless,
        "peak_level": endless / share,
        "balanced_ffn": routing.routed(model).expert_ffn / endless,
        "link_efficiency": crossing / reached / level.bytes_per_s,
        "communication_multiplier": crossing / valid,
        "reached": _seconds(case) / reached,
    }
    name = f"ep.ratio.{level.name}"
    wish: dict[str, Any] = {"limit": 1.0, "sense": ">=", "advisory": True}
    screening = "above 1 the transfers of an even, unpadded dispatch could hide behind the experts (screening)"
    outlasting = "below 1 the transfers outlast the experts' forward and cannot hide behind them"
    factors = {
        f"{name}.peak_level": 1,
        f"{name}.link_efficiency": 1,
        "ep.gemm_efficiency": -1,
        "ep.compute_multiplier": 1,
        f"{name}.communication_multiplier": -1,
    }
    measured: dict[str, Any] = {"record": REACHED}
    each = {
        "peak": {**wish, "why": screening},
        "link_efficiency": measured,
        "communication_multiplier": measured,
        "reached": {**wish, **measured, "why": outlasting, "factors": factors},
    }
    link = f"topology.levels.{level.name}.bandwidth"
    origins = ["model.moe.expert_ffn", "run.routing.combine_bytes", link, "topology.device.peak"]
    return case.tabled(name, 5, RATIOS, values, each, formula="F1.6", origins=origins, record=PEAKS)


def _widths(case: ContractCase) -> tuple[float, float]:
    """Bytes per element of dispatch and combine."""
    return volumes.dispatch_element_bytes(run=case.run), case.run.routing.combine_bytes


def _endless(case: ContractCase, bytes_per_s: float) -> float:
    """Rcc from peaks in an endless group; experts without gate have two matrices for three."""
    dispatch, combine = _widths(case)
    ratio = routing.compute_communication_ratio(
        routing.routed(case.model).expert_ffn,
        bytes_per_s=bytes_per_s,
        flops_per_s=_peak(case),
        dispatch_bytes=dispatch,
        combine_bytes=combine,
    )
    return case.model.ffn_matrices / 3.0 * number(ratio)


def _reached_s(case: ContractCase, place: int) -> float:
    """Seconds of dispatch and combine of one layer if this level alone took time."""
    rows = case.point.rows
    grid = (case.tokens, rows["etp"], rows["ep"], int(case.mapping.dispatcher))
    told = {**case.told, "fabric": level_facts(case.facts, place).fabric}
    return number(communication.ep_dispatch_s(*grid, **told)) + number(communication.ep_combine_s(*grid, **told))
