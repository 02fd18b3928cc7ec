"""Domain 5, expert-parallel communication: this mapping's dispatcher, and the acceptance test of the library.

Contents: rows.

The acceptance test is a fixed-size all-to-all over the whole EP group, whatever dispatcher the mapping uses: it is
what any library must do first (FORMULAS 1.4).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mapsearch.axes import Dispatcher, written
from mapsearch.contract import Row
from mapsearch.contracting.case import ContractCase, Text
from mapsearch.contracting.fixed import JITTER, LINKS, ORIGINS, fixed_rows, valid_bytes, widths_of
from mapsearch.contracting.library import library_rows
from mapsearch.contracting.ratio import ratio_rows
from mapsearch.contracting.wire import traffic_of
from mapsearch.costs import collectives, communication, routing, volumes
from mapsearch.costs.estimate import number

TRACE = "bytes and seconds of every dispatch and combine of one layer on every rank, forward, third step or later"
SENT = {
    "layer_wire_bytes": Text(
        "dispatch and combine of one layer: bytes that leave the rank, forward",
        "bytes",
        "bytes sent to other ranks, per rank",
    ),
    "waste": Text(
        "1 - valid bytes / bytes sent: what padding takes",
        "share",
        "from valid rows and rows sent; reported in every run",
    ),
    "peer_bytes": Text(
        "mean bytes of one dispatch to one peer", "bytes", "bytes to each peer: mean, largest and smallest"
    ),
    "step_bytes": Text(
        "bytes that one rank sends for experts in a step, recompute and backward included",
        "bytes",
        "sum over the step",
    ),
}
SEEN = {
    "communication_s": Text(
        "expert communication of one step on the slowest stage, hidden or not",
        "s",
        "sum of the collectives' seconds over the step",
        "time",
    ),
    "exposed_s": Text(
        "what of it the step sees: step time less step time without it",
        "s",
        "seconds of the step less those of a step with dispatch and combine removed",
        "time",
    ),
}


def rows(case: ContractCase) -> list[Row]:
    """Own dispatcher, fixed-size acceptance test, library flags, and the ratio of compute to communication."""
    if case.model.moe is None:
        return []
    own = [*_own_bytes(case), *_own_levels(case), *_own_time(case)]
    return [*own, *fixed_rows(case), *library_rows(case), *ratio_rows(case)]


def _payload(case: ContractCase, dispatcher: int, width: float) -> float:
    """Bytes that one rank hands to one exchange, its own share included."""
    told = case.shaped
    if dispatcher == Dispatcher.ALL_GATHER:
        return case.tokens * case.model.hidden * width
    ep = case.mapping.ep
    return number(volumes.ep_payload_bytes(case.tokens, ep, dispatcher, element_bytes=width, **told))


def _own_bytes(case: ContractCase) -> list[Row]:
    """Bytes of one layer and microbatch of this mapping's dispatcher, forward, per rank."""
    kind = int(case.mapping.dispatcher)
    word = str(written("dispatcher", kind))
    row = partial(case.row, domain=5, formula="F1.4, F4.2", origins=ORIGINS, record=TRACE)
    told = []
    for way, width in widths_of(case).items():
        payload, valid = _payload(case, kind, width), valid_bytes(case, width)
        told += [
            row(
                f"ep.{way}_bytes",
                meaning=f"{way} of one layer: bytes that one rank hands over, own share included ({word})",
                predicted=payload,
                unit="bytes",
                compute="size of the send buffer",
            ),
            row(
                f"ep.{way}_valid_bytes",
                meaning=f"{way} of one layer: bytes of one rank's assignments, tau K h e, nothing padded",
                predicted=valid,
                unit="bytes",
                compute="valid rows times hidden width times bytes per element",
            ),
        ]
        if kind in (Dispatcher.ALL_TO_ALL, Dispatcher.FIXED_ALL_TO_ALL):
            told.append(
                row(
                    f"ep.{way}_padding_bytes",
                    meaning=f"{way} of one layer: bytes beyond the valid ones",
                    predicted=payload - valid,
                    unit="bytes",
                    compute="size of the send buffer less valid bytes",
                )
            )
    return [*told, *_own_sums(case, kind)]


def _own_sums(case: ContractCase, kind: int) -> list[Row]:
    """Bytes of dispatch and combine together, and what padding takes of them."""
    sent = traffic_of(case.point)
    values = {
        "layer_wire_bytes": sent.layer["ep"][0],
        "waste": _waste(case, kind),
        "peer_bytes": _payload(case, kind, widths_of(case)["dispatch"]) / _peers(case, kind),
        "step_bytes": sent.step["ep"],
    }
    return case.tabled("ep", 5, SENT, values, formula="F1.4, F4.2", origins=ORIGINS, record=TRACE)


def _peers(case: ContractCase, kind: int) -> float:
    """Ranks among which a payload is divided; an all-gather sends the whole of it to everyone."""
    return 1.0 if kind == Dispatcher.ALL_GATHER else float(case.mapping.ep)


def _waste(case: ContractCase, kind: int) -> float:
    if kind != Dispatcher.FIXED_ALL_TO_ALL:
        return 0.0
    return 1.0 - 1.0 / number(routing.amplification(case.tokens, model=case.model, run=case.run))


def _own_levels(case: ContractCase) -> list[Row]:
    """Bytes of one layer that cross each level, and what a node-wise de-duplicated dispatch would send."""
    row = partial(case.row, domain=5, formula="F4.4", unit="bytes", record="counters of the links of one device")
    told = []
    told_apart = {**case.shaped, "element_bytes": widths_of(case)["dispatch"]}
    lean = volumes.deduplicated_loads_bytes(case.tokens, case.point.rows["ep"], **told_apart)
    exchange = Dispatcher.ALL_TO_ALL
    flat = _payload(case, exchange, widths_of(case)["dispatch"])
    plain = collectives.crossing_bytes(flat, case.point.rows["ep"], fabric=case.fabric, exchange=True)
    for place, level in enumerate(case.fabric.levels):
        crossing = traffic_of(case.point, place).layer["ep"][0]
        if not crossing:
            continue
        origins = [*ORIGINS, f"topology.levels.{level.name}.size"]
        told += [
            row(
                f"ep.level.{level.name}_bytes",
                meaning=f"dispatch and combine of one layer: bytes per device that cross a {level.name}, forward",
                predicted=crossing,
                origins=origins,
                compute=f"bytes on the device's links of this level in one layer's forward ({level.name})",
            ),
            row(
                f"ep.level.{level.name}_plain_bytes",
                meaning=f"one plain all-to-all of the dispatch: bytes per device that cross a {level.name}",
                predicted=float(plain[place]),
                origins=origins,
                compute="the same with a variable-size all-to-all and even routing",
            ),
            row(
                f"ep.level.{level.name}_deduplicated_bytes",
                meaning=f"one de-duplicated dispatch: bytes per device that cross a {level.name}",
                predicted=number(lean[place]),
                origins=origins,
                compute="the same with a dispatcher that sends one copy per unit",
            ),
        ]
    return told


def _own_time(case: ContractCase) -> list[Row]:
    """Seconds and effective bandwidth of the mapping's dispatcher, and what of it the step sees."""
    rows_of, kind = case.point.rows, int(case.mapping.dispatcher)
    grid = (case.tokens, rows_of["etp"], rows_of["ep"], kind)
    seconds = {
        "dispatch": number(communication.ep_dispatch_s(*grid, **case.told)),
        "combine": number(communication.ep_combine_s(*grid, **case.told)),
    }
    wire = traffic_of(case.point).layer["ep"][0] / 2.0
    row = partial(case.row, domain=5, record=TRACE, kind="time", origins=[*ORIGINS, *LINKS])
    told = []
    for way, took in seconds.items():
        for suffix, quantile in (("_s", "p50"), ("_p95_s", "p95"), ("_p99_s", "p99")):
            told.append(
                row(
                    f"ep.{way}{suffix}",
                    meaning=f"{quantile} of {way} of one layer and microbatch, nothing hidden",
                    predicted=took,
                    unit="s",
                    formula="F4.1, F4.2",
                    compute=f"{quantile} over the calls of the slowest rank",
                    factors={"ep.layer_wire_bytes": 1, "ep.effective_bytes_per_s": -1} if suffix == "_s" else {},
                    why="" if suffix == "_s" else JITTER,
                )
            )
    if sum(seconds.values()):
        told.append(
            row(
                "ep.effective_bytes_per_s",
                meaning="effective bandwidth per rank: bytes that leave it over seconds, dispatch and combine",
                predicted=2.0 * wire / sum(seconds.values()),
                unit="bytes/s",
                formula="F4.1",
                compute="ep.layer_wire_bytes over the seconds of dispatch and combine",
            )
        )
    return [*told, *_seen(case)]


def _seen(case: ContractCase) -> list[Row]:
    """Expert communication of a whole step, and what of it the step sees."""
    estimate, limit = case.estimate, case.run.exposed_limit_by_class.get("ep")
    capped = {
        "limit": None if limit is None else limit * estimate.step_time_s,
        "why": "run.exposed_limit_by_class.ep" if limit is not None else "the run sets no limit for EP",
    }
    values = {"communication_s": estimate.communication_s["ep"], "exposed_s": estimate.exposed_s["ep"]}
    origins = [*ORIGINS, *LINKS]
    shared: dict[str, Any] = {"formula": "F1.5, F4.2, F4.3", "origins": origins, "record": TRACE}
    return case.tabled("ep", 5, SEEN, values, {"exposed_s": capped}, **shared)
