"""The ratio of expert compute to expert communication, from peaks and from what is reached, one per level (F1.6).

Contents: ratio_rows.

From peaks it screens: how large f, or the bandwidth, has to be. From measured efficiencies, with what padding, skew and
de-duplication multiply, it finds the gap. If the GEMM runs the padding too, both sides grow and the ratio stays, while
the time does not.
"""

from __future__ import annotations

from functools import partial

from mapsearch.contract import Row
from mapsearch.contracting.case import ContractCase
from mapsearch.contracting.wire import level_facts, traffic_of
from mapsearch.costs import communication, compute, routing, volumes
from mapsearch.costs.estimate import number

PEAKS = "bandwidth of one device on this level one way, and peak FLOP/s, from datasheets"
REACHED = "seconds of the grouped GEMMs, and of dispatch and combine, of one layer, forward, on the busiest rank"


def ratio_rows(case: ContractCase) -> list[Row]:
    """FLOP and seconds of the experts of one layer, and both ratios for every level that EP crosses."""
    told = _work(case)
    total = traffic_of(case.point).layer["ep"][0]
    for place in range(len(case.fabric.levels)):
        crossing = traffic_of(case.point, place).layer["ep"][0]
        if crossing and total:
            told += _level_rows(case, place, crossing)
    return told


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


def _level_rows(case: ContractCase, place: int, crossing: float) -> list[Row]:
    level = case.fabric.levels[place]
    widths = volumes.dispatch_element_bytes(run=case.run), case.run.routing.combine_bytes
    told = {"bytes_per_s": level.bytes_per_s, "flops_per_s": _peak(case)}
    each = {"dispatch_bytes": widths[0], "combine_bytes": widths[1]}
    ffn, ranks = routing.routed(case.model).expert_ffn, float(case.mapping.ep)
    gated = case.model.ffn_matrices / 3.0
    endless = gated * number(routing.compute_communication_ratio(ffn, **told, **each))
    # Only what crosses this level: the valid bytes of every rank outside one unit of the level below.
    inside = 1
    for cut in case.point.rows["ep"][:place]:
        inside *= int(cut)
    share = (ranks - inside) / ranks
    reached = _reached_s(case, place)
    meas = _seconds(case) / reached
    efficiency = crossing / reached / level.bytes_per_s
    valid = sum(widths) * case.tokens * routing.routed(case.model).top_k * case.model.hidden * share
    row = partial(
        case.row,
        domain=5,
        unit="ratio",
        formula="F1.6",
        origins=[
            "model.moe.expert_ffn",
            "run.routing.combine_bytes",
            f"topology.levels.{level.name}.bandwidth" if _leveled(case) else "topology.links",
            "topology.device.peak",
        ],
    )
    name = f"ep.ratio.{level.name}"
    return [
        row(
            f"{name}.peak",
            meaning=f"Rcc from peaks at {level.name} bandwidth, all {ranks:g} ranks: 6 f/(e_d+e_c) B/F n/(n-1)",
            predicted=endless * ranks / (ranks - 1.0),
            limit=1.0,
            sense=">=",
            why="above 1 the transfers of an even, unpadded dispatch could hide behind the experts (screening)",
            advisory=True,
            record=PEAKS,
            compute="6 f / (e_d + e_c) times bandwidth over peak times n / (n - 1)",
        ),
        row(
            f"{name}.peak_endless",
            meaning=f"the same for endless groups: n -> infinity ({level.name})",
            predicted=endless,
            record=PEAKS,
            compute="6 f / (e_d + e_c) times bandwidth over peak",
        ),
        row(
            f"{name}.peak_level",
            meaning=f"Rcc from peaks with only the bytes that cross a {level.name}, (R - g)/R of them",
            predicted=endless / share,
            record=PEAKS,
            compute="the endless ratio over the share of the ranks outside one unit below this level",
        ),
        row(
            f"{name}.balanced_ffn",
            meaning=f"expert FFN width at which the endless ratio is 1 on this level ({level.name})",
            predicted=ffn / endless,
            record=PEAKS,
            compute="f over the endless ratio",
        ).model_copy(update={"unit": "columns"}),
        row(
            f"{name}.link_efficiency",
            meaning=f"eta_link: bytes that cross a {level.name} over seconds and its bandwidth",
            predicted=efficiency,
            kind="time",
            record=REACHED,
            compute="bytes on the device's links of this level over the seconds of dispatch and combine",
        ),
        row(
            f"{name}.communication_multiplier",
            meaning=f"bytes that cross a {level.name} over the even, unpadded, undeduplicated ones",
            predicted=crossing / valid,
            kind="model",
            record=REACHED,
            compute="bytes on the links of this level over (e_d + e_c) tau K h (R - g)/R",
        ),
        row(
            f"{name}.reached",
            meaning=f"Rcc from efficiencies and multipliers, {level.name} alone: seconds of experts over its seconds",
            predicted=meas,
            kind="time",
            sense=">=",
            limit=1.0,
            why="below 1 the transfers outlast the experts' forward and cannot hide behind them",
            advisory=True,
            record=REACHED,
            compute="peak_level times (eta_link / eta_gemm) times compute over communication multiplier",
            factors={
                f"{name}.peak_level": 1,
                f"{name}.link_efficiency": 1,
                "ep.gemm_efficiency": -1,
                "ep.compute_multiplier": 1,
                f"{name}.communication_multiplier": -1,
            },
        ),
    ]


def _leveled(case: ContractCase) -> bool:
    return case.topology is None or bool(case.topology.levels)


def _reached_s(case: ContractCase, place: int) -> float:
    """Seconds of dispatch and combine of one layer if this level alone took time."""
    rows = case.point.rows
    grid = (case.tokens, rows["etp"], rows["ep"], int(case.mapping.dispatcher))
    told = {**case.told, "fabric": level_facts(case.facts, place).fabric}
    return number(communication.ep_dispatch_s(*grid, **told)) + number(communication.ep_combine_s(*grid, **told))
