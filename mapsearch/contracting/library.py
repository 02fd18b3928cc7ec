"""The acceptance list of the communication library, as flags of the topology (domain 5).

Contents: FLAGS, library_rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from mapsearch.axes import Dispatcher
from mapsearch.contract import Row, Verdict
from mapsearch.contracting.case import ContractCase


@dataclass(frozen=True)
class Flag:
    """One entry of the acceptance list."""

    name: str
    """Of `LibrarySpec`."""
    meaning: str
    needed_by: tuple[int, ...] | None
    """Dispatchers that need it; None: the contract itself does."""
    record: str
    compute: str


FLAGS = (
    Flag(
        "whole_group",
        "all-to-all of one size for all over the whole EP group",
        None,
        "call it on the EP group of this mapping with the buffer of ep.fixed.peer_bytes, tagged by source and slot",
        "every rank holds every other rank's tagged buffer, and nothing else",
    ),
    Flag(
        "bytes_per_peer",
        "bytes sent to and received from each peer are counted",
        None,
        "the library's counters before and after one all-to-all of known size",
        "R - 1 peers show the buffer of ep.fixed.peer_bytes each way",
    ),
    Flag(
        "timings",
        "every collective is timed, so that p50, p95 and p99 are known",
        None,
        "start and end of each call on each rank, on the device's clock",
        "p50, p95 and p99 over at least 1,000 calls, of the slowest rank of each call",
    ),
    Flag(
        "padding_bytes",
        "bytes of capacity padding and of per-peer padding are counted apart",
        None,
        "valid rows and rows sent, per peer, in the dispatcher",
        "rows sent less valid rows, times hidden width and bytes per element",
    ),
    Flag(
        "variable_size",
        "all-to-all with its own size for each peer",
        (Dispatcher.ALL_TO_ALL,),
        "call it with sizes that differ by peer, zero among them",
        "every rank holds what each other one sent it, no more",
    ),
    Flag(
        "sparse",
        "a token is sent once to each rank or unit that holds an expert of it",
        (Dispatcher.DEDUPLICATED,),
        "dispatch tokens whose experts share ranks, and count bytes per peer",
        "bytes follow routing.distinct_ranks and not K",
    ),
)


def library_rows(case: ContractCase) -> list[Row]:
    """A row per flag, and the largest group."""
    row = partial(case.row, domain=5, formula="F1.4")
    told = []
    for flag in FLAGS:
        shown = _shown(case, flag)
        verdict, why = _judged(case, flag, shown)
        told.append(
            row(
                f"ep.library.{flag.name}",
                meaning=flag.meaning,
                predicted={True: "yes", False: "no", None: "not said"}[shown],
                unit="word",
                origins=[_field(case, flag)] if case.topology else [],
                record=flag.record,
                compute=flag.compute,
                verdict=verdict,
                why=why,
            )
        )
    largest = case.topology.library.largest_group if case.topology else None
    told.append(
        row(
            "ep.library.group",
            meaning="ranks of the EP group of this mapping",
            predicted=case.mapping.ep,
            unit="ranks",
            origins=["mapping.ep", *(["topology.library.largest_group"] if case.topology else [])],
            limit=float(largest) if largest else None,
            why="topology.library.largest_group" if largest else "topology.library.largest_group is not given",
            record="the size of the communicator",
            compute="read it",
        )
    )
    return told


def _field(case: ContractCase, flag: Flag) -> str:
    said = case.topology is not None and getattr(case.topology.library, flag.name) is not None
    inferred = flag.name == "variable_size" and not said
    return "topology.all_to_all" if inferred else f"topology.library.{flag.name}"


def _shown(case: ContractCase, flag: Flag) -> bool | None:
    """What the topology says; that only fixed sizes are offered says that variable ones are not."""
    said: bool | None = getattr(case.topology.library, flag.name) if case.topology else None
    if said is None and flag.name == "variable_size" and not case.fabric.variable_all_to_all:
        return False
    return said


def _judged(case: ContractCase, flag: Flag, shown: bool | None) -> tuple[Verdict, str]:
    if case.mapping.ep == 1:
        return "holds", "EP is 1: nothing is exchanged"
    needed = flag.needed_by is None or int(case.mapping.dispatcher) in flag.needed_by
    if shown:
        return "holds", "the topology says that it has been shown"
    if shown is None:
        return "must be measured", f"topology.library.{flag.name} is not given"
    if needed:
        return "broken", "this mapping, and its contract, need it"
    return "holds", "this mapping does without"
