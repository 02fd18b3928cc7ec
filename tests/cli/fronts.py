"""Made-up fronts, for the tests of everything that shows or compares them."""

from __future__ import annotations

import answers

from mapsearch.answer import Proof, Provenance, Space
from mapsearch.front import Front, FrontPoint

GB = 1e9
POINTS = ((10.0, 80 * GB), (12.0, 40 * GB), (20.0, 30 * GB), (40.0, 29 * GB))


def front(points=POINTS, *, knee=1, status="proven", provenance=None, **changes):
    """A front of step time and memory; each point is another mapping."""
    made = []
    for place, (step_s, peak) in enumerate(points):
        sizes = {**answers.mapping().sizes, "tp": 2 ** (place + 1)}
        mapping = answers.mapping(place + 1, step_s=step_s, sizes=sizes, peak_memory_bytes=peak)
        objectives = {"step_time": step_s, "peak_memory": peak}
        made.append(FrontPoint(rank=place + 1, objectives=objectives, knee=place == knee, mapping=mapping))
    fields = {
        "status": status,
        "objectives": ["step_time", "peak_memory"],
        "units": {"step_time": "s", "peak_memory": "bytes"},
        "points": made,
        "space": Space(mappings=10**9, cells=4321, pairs_evaluated=98_765),
        "proofs": [Proof(backend="exhaustive", status="proven", kind="exhaustion", detail="9 cells")],
        "provenance": provenance or answers.PROVENANCE,
    }
    return Front(**{**fields, **changes})


def open_front():
    """A front whose search was stopped."""
    points = [point.model_copy(update={"settled": point.rank == 1}) for point in front().points]
    region = [{"step_time": 11.0, "peak_memory": 20 * GB}]
    return front(status="open", proofs=[]).model_copy(update={"points": points, "open_region": region})


def empty(status):
    return front(points=(), status=status, proofs=[])


def elsewhere() -> Provenance:
    """Other inputs than those of `answers.PROVENANCE`."""
    return answers.PROVENANCE.model_copy(
        update={
            "topology": "hgx-h100",
            "input_sha256": {"model": "1" * 64},
            "overrides": {"at_most": ["tp=4"]},
            "libraries": {"ortools": "9.16"},
            "assumptions": [*answers.PROVENANCE.assumptions[:2], "topology hgx-h100: something (assumed)"],
        }
    )
