"""The acceptance test of the library: a fixed-size all-to-all over the whole EP group (domain 5).

Contents: ORIGINS, LINKS, TEST, BUFFERS, VOLUMES, JITTER, widths_of, valid_bytes, fixed_point, fixed_rows.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mapsearch.axes import Dispatcher
from mapsearch.contract import Row
from mapsearch.contracting.case import ContractCase, Text
from mapsearch.costs import communication, routing, volumes
from mapsearch.costs.estimate import Point, number

ORIGINS = ("model.hidden", "model.moe.top_k", "mapping.ep", "mapping.dispatcher", "run.routing.capacity_factor")
"""What the bytes of an exchange rest on."""
LINKS = ("topology.levels.*.bandwidth", "topology.levels.*.latency", "profile.all_to_all.peak")
"""What its seconds rest on besides."""
TEST = "the acceptance test: one fixed-size all-to-all over the whole EP group"
BUFFERS = {
    "pair_slots": Text(
        "M = (E/R) C_src: token slots that each rank sends to each rank", "slots", "rows of the buffer of one peer"
    ),
    "peer_bytes": Text(
        "bytes sent to, and received from, each peer: M h e",
        "bytes",
        "the library's counters of each peer, sent and received",
    ),
    "buffer_bytes": Text("send buffer of one rank, and its receive buffer: R M h e", "bytes", "size of either buffer"),
    "wire_bytes": Text(
        "bytes of one all-to-all that leave the rank: (R - 1) M h e", "bytes", "sum over the other ranks"
    ),
    "group_bytes": Text("dispatch and combine of the whole group, buffers: 2 R^2 M h e", "bytes", "sum over the ranks"),
    "capacity_padding_bytes": Text(
        "extra bytes of capacity padding in one send buffer: slots of experts beyond their load",
        "bytes",
        "size of the buffer less valid rows times h e",
    ),
    "waste": Text("1 - valid / sent of the padded all-to-all", "share", "from the same counters"),
    "amplification": Text("E C_src / (N_src K): padded over valid rows", "ratio", "sent over valid rows"),
    "peer_padding_bytes": Text(
        "extra bytes of per-peer padding when every buffer is as large as the busiest pair's",
        "bytes",
        "R max_ij n_ij h e less valid bytes, from the R x R matrix of rows",
        "model",
    ),
    "worst_amplification": Text(
        "R min(K, E/R) / K: buffers that no routing can overflow, over valid rows",
        "ratio",
        "only of a dropless fixed-size dispatcher",
    ),
}
VOLUMES = {
    "volume_ideal_bytes": Text(
        "V_ideal = 2 N K h e of one longest sequence, whole domain, own shares included",
        "bytes",
        "valid rows of all ranks times 2 h e",
    ),
    "volume_fixed_bytes": Text(
        "V_fix = 2 E C h e of that sequence: least bytes of a fixed capacity",
        "bytes",
        "slots of all experts times 2 h e",
    ),
}
JITTER = "the model knows no jitter: p95 and p99 are at least the p50 of the slowest rank"


def widths_of(case: ContractCase) -> dict[str, float]:
    """Bytes per element of dispatch and combine."""
    return {"dispatch": volumes.dispatch_element_bytes(run=case.run), "combine": case.run.routing.combine_bytes}


def valid_bytes(case: ContractCase, width: float) -> float:
    """Bytes of the assignments of one rank: tau K h e."""
    return case.tokens * routing.routed(case.model).top_k * case.model.hidden * width


def fixed_point(case: ContractCase) -> Point:
    """The mapping with the fixed-size dispatcher."""
    return case.under(dispatcher=int(Dispatcher.FIXED_ALL_TO_ALL))


def fixed_rows(case: ContractCase) -> list[Row]:
    """Bytes and seconds of the acceptance test."""
    return [*_fixed_bytes(case), *_fixed_time(case)]


def _fixed_bytes(case: ContractCase) -> list[Row]:
    """Buffers of a fixed-size all-to-all over the whole EP group, per rank and for the group."""
    told = case.shaped
    moe, ranks, hidden = routing.routed(case.model), case.mapping.ep, case.model.hidden
    width = widths_of(case)["dispatch"]
    slots = moe.experts / ranks * number(routing.capacity(case.tokens, **told))
    buffer, valid = slots * hidden * width, valid_bytes(case, width)
    sent = ranks * buffer
    skew = number(volumes.transfer_skew(ranks, **told))
    values = {
        "pair_slots": slots,
        "peer_bytes": buffer,
        "buffer_bytes": sent,
        "wire_bytes": sent - buffer,
        "group_bytes": number(routing.group_volume_bytes(ranks, slots, hidden=hidden, element_bytes=width)),
        "capacity_padding_bytes": sent - valid,
        "waste": 1.0 - valid / sent,
        "amplification": sent / valid,
        "peer_padding_bytes": (skew - 1.0) * valid,
        "worst_amplification": number(routing.worst_case_amplification(ranks, experts=moe.experts, top_k=moe.top_k)),
    }
    skewed = {
        "origins": ["run.routing.pair_skew", "run.routing.rank_skew"],
        "why": f"run.routing.rank_skew and pair_skew say {skew:g}",
    }
    shared: dict[str, Any] = {"formula": "F1.4", "origins": ORIGINS, "record": f"{TEST}, 1,000 calls"}
    buffers = case.tabled("ep.fixed", 5, BUFFERS, values, {"peer_padding_bytes": skewed}, **shared)
    whole = {"volume_ideal_bytes": _whole(case, padded=False), "volume_fixed_bytes": _whole(case, padded=True)}
    return [*buffers, *case.tabled("ep", 5, VOLUMES, whole, **shared)]


def _whole(case: ContractCase, *, padded: bool) -> float:
    moe = routing.routed(case.model)
    tokens = float(case.model.max_sequence_length or case.run.sequence_length)
    width = widths_of(case)["dispatch"]
    if not padded:
        return number(
            routing.ideal_volume_bytes(tokens, top_k=moe.top_k, hidden=case.model.hidden, element_bytes=width)
        )
    factor = case.run.routing.capacity_factor
    return number(
        routing.fixed_volume_bytes(
            tokens,
            experts=moe.experts,
            top_k=moe.top_k,
            hidden=case.model.hidden,
            element_bytes=width,
            capacity_factor=factor,
        )
    )


def _fixed_time(case: ContractCase) -> list[Row]:
    """Seconds of the acceptance test, its percentiles, and the whole step with that dispatcher."""
    point = fixed_point(case)
    grid = (case.tokens, point.rows["etp"], point.rows["ep"], int(Dispatcher.FIXED_ALL_TO_ALL))
    took = number(communication.ep_dispatch_s(*grid, **case.told))
    row = partial(
        case.row,
        domain=5,
        formula="F4.1, F4.4",
        kind="time",
        origins=[*ORIGINS, *LINKS],
        record=f"{TEST}, all groups of the cluster at once, 1,000 calls",
    )
    told = [
        row(
            f"ep.fixed.{name}_s",
            meaning=f"{name} of one fixed-size all-to-all, slowest rank of each call",
            predicted=took,
            unit="s",
            compute=f"{name} over the calls",
            why=JITTER if name != "p50" else "",
        )
        for name in ("p50", "p95", "p99")
    ]
    told.append(
        row(
            "ep.fixed.step_s",
            meaning="step time of this mapping with the fixed-size dispatcher",
            predicted=point.step_time_s(),
            unit="s",
            compute="median seconds between optimizer steps with that dispatcher",
        )
    )
    return told
