"""From steps of a front, or from solved values, to the typed result.

Contents: from_steps, from_samples.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

from mapsearch.answer import Proof, RankedMapping, Space
from mapsearch.costs.estimate import point_of
from mapsearch.costs.views import Facts
from mapsearch.inputs import Inputs
from mapsearch.interrupts import requested
from mapsearch.inventories.mapping import Mapping
from mapsearch.parametric import Piece, Sensitivity, SensitivityStatus
from mapsearch.sensitivities.exact import Step
from mapsearch.sensitivities.inputs import Varied
from mapsearch.sensitivities.sampled import Sampler, Stretch, stretches
from mapsearch.solver.explain.binding import difference
from mapsearch.solver.front import FrontSearch
from mapsearch.solver.problem import problem_of
from mapsearch.solver.provenance import provenance_of
from mapsearch.solver.ranking import mapping_of, ranked_mapping
from mapsearch.solver.top import Key

NO_BINDING = "what binds is not looked for here: the next piece says what relaxing the input unlocks"
At = Callable[[float], Facts]


def from_steps(
    varied: Varied, inputs: Inputs, at: At, found: FrontSearch, steps: list[Step], proofs: list[Proof], notes: list[str]
) -> Sensitivity:
    """The result of an exact step function."""
    pieces: list[Piece] = []
    before: Step | None = None
    for rank, step in enumerate(steps, start=1):
        mapping = None if step.point is None else _told(rank, mapping_of(step.point.candidate), at(step.low))
        seconds = None if mapping is None else mapping.step_time_s
        upper = varied.written(step.high)
        ends = "to" if rank == len(steps) else "to below"
        pieces.append(
            Piece(
                rank=rank,
                low=step.low,
                high=step.high,
                interval=f"{varied.written(step.low)} {ends} {upper}",
                changes_between=None if before is None else [step.low, step.low],
                step_time_low_s=seconds,
                step_time_high_s=seconds,
                change="" if before is None else _change(_key(before), _key(step)),
                settled=step.settled,
                mapping=mapping,
            )
        )
        before = step
    space = Space(
        mappings=found.mappings, cells=found.cells, pairs_evaluated=found.pairs, grid_options=found.grid_options
    )
    told = list(notes)
    if not found.complete:
        settled = sum(piece.settled for piece in pieces)
        told.append(
            f"{_why(found.interrupted)} before the search went through the whole space: {settled} of {len(pieces)} "
            "pieces are settled, in the others a faster mapping may be missing"
        )
    return _result(
        varied,
        inputs,
        pieces,
        status=_status(pieces, proofs, found.complete),
        solves=1,
        space=space,
        proofs=proofs,
        notes=[*inputs.notes, *told],
        interrupted=found.interrupted or requested(),
    )


def from_samples(varied: Varied, inputs: Inputs, sampler: Sampler, notes: list[str], tolerance: float) -> Sensitivity:
    """The result of solved values."""
    each = varied.kind.breakpoints == "listed"
    pieces: list[Piece] = []
    before: Key | None = None
    for rank, stretch in enumerate(stretches(sampler, each=each), start=1):
        pieces.append(_stretched(varied, sampler, stretch, rank, before))
        before = stretch.of.found.top[0].key if stretch.of.found.top else None
    complete = not sampler.unsolved and all(sample.found.complete for sample in sampler.samples.values())
    proofs = _joined(sampler)
    if proofs and any(sample.proof is None for sample in sampler.samples.values()):
        proofs = [proof.model_copy(update={"status": "not proven"}) for proof in proofs if proof.status != "disagrees"]
    return _result(
        varied,
        inputs,
        pieces,
        status=_status(pieces, proofs, complete),
        tolerance=None if each else tolerance,
        solves=len(sampler.samples),
        space=_space(sampler),
        proofs=proofs,
        notes=[*inputs.notes, *notes, *_remarks(varied, inputs, sampler, pieces)],
        interrupted=sampler.interrupted,
    )


def _stretched(varied: Varied, sampler: Sampler, stretch: Stretch, rank: int, before: Key | None) -> Piece:
    first, last = stretch.samples[0], stretch.samples[-1]
    mapping = None if stretch.mapping is None else _told(rank, stretch.mapping, first.problem.facts)
    after = stretch.of.found.top[0].key if stretch.of.found.top else None
    ends = [sampler.time_s(stretch.mapping, sample.value) for sample in (first, last)]
    written = varied.written(first.value)
    return Piece(
        rank=rank,
        low=first.value,
        high=last.value,
        interval=written if first is last else f"{written} to {varied.written(last.value)}",
        changes_between=None if stretch.since is None else list(stretch.since),
        step_time_low_s=ends[0] if mapping else None,
        step_time_high_s=ends[1] if mapping else None,
        change="" if rank == 1 else _change(before, after, moved=stretch.since is not None),
        unseen_gain=_unseen_gain(varied, sampler, stretch),
        settled=all(sample.found.complete for sample in stretch.samples),
        mapping=mapping,
    )


def _unseen_gain(varied: Varied, sampler: Sampler, stretch: Stretch) -> float | None:
    """What another mapping could save between two solved values, as a share of the step.

    With more bandwidth no step gets longer and, without limits on exposed communication, no mapping is lost; with a
    larger capacity factor the other way round. So between two values no step is shorter than the best at the better
    end, nor the piece's own longer than at the worse end.
    """
    run = stretch.of.problem.facts.run
    limited = run.exposed_limit < 1.0 or run.exposed_limit_by_class
    if varied.kind.breakpoints != "bracketed" or stretch.mapping is None or limited:
        return None
    times = [sampler.time_s(stretch.mapping, sample.value) for sample in stretch.samples]
    shares = [abs(a - b) / max(a, b) for a, b in itertools.pairwise(times)]
    return max(shares, default=0.0)


def _told(rank: int, mapping: Mapping, facts: Facts) -> RankedMapping:
    return ranked_mapping(rank, point_of(mapping, facts), problem_of(facts).relations, binding_note=NO_BINDING)


def _key(step: Step) -> Key | None:
    return None if step.point is None else step.point.candidate.key


def _change(before: Key | None, after: Key | None, *, moved: bool = False) -> str:
    """`moved`: the placement differs at least."""
    if after is None:
        return "" if before is None else "nothing fits any more"
    if before is None:
        return "the first that fits"
    return "" if before == after and not moved else difference(before, after)


def _why(interrupted: bool) -> str:
    return "interrupted" if interrupted else "the time limit passed"


def _status(pieces: list[Piece], proofs: list[Proof], complete: bool) -> SensitivityStatus:
    states = {proof.status for proof in proofs}
    some = any(piece.mapping is not None for piece in pieces)
    if not complete or "disagrees" in states:
        return "open" if some else "unknown"
    if not some:
        return "infeasible"
    return "proven" if "proven" in states else "exact"


def _space(sampler: Sampler) -> Space:
    found = [sample.found for sample in sampler.samples.values()]
    return Space(
        mappings=sum(each.mappings for each in found),
        cells=sum(each.cells for each in found),
        pairs_evaluated=sum(each.pairs for each in found),
        grid_options=sum(each.grid_options for each in found),
    )


def _joined(sampler: Sampler) -> list[Proof]:
    """One proof for all solves: not proven as soon as one of them is not."""
    proofs = [sample.proof for sample in sampler.samples.values() if sample.proof is not None]
    if not proofs:
        return []
    bad = next((p for p in proofs if p.status == "disagrees"), next((p for p in proofs if p.status != "proven"), None))
    counts = Counter(f"{proof.backend} ({proof.kind})" for proof in proofs)
    ways = ", ".join(f"{count} by {way}" for way, count in counts.items())
    return [
        Proof(
            backend=Counter(proof.backend for proof in proofs).most_common(1)[0][0],
            status=bad.status if bad else "proven",
            kind="each solved value",
            seconds=sum(proof.seconds for proof in proofs),
            detail=bad.detail if bad else f"{len(proofs)} of {len(sampler.samples)} solves: {ways}",
        )
    ]


def _remarks(varied: Varied, inputs: Inputs, sampler: Sampler, pieces: list[Piece]) -> list[str]:
    notes = []
    if varied.kind.breakpoints == "bracketed":
        text = (
            "breakpoints are bracketed, not exact: a mapping that is the best only between two solved values is missed"
        )
        gains = [piece.unseen_gain for piece in pieces if piece.unseen_gain is not None]
        if gains and len(gains) == sum(piece.mapping is not None for piece in pieces):
            text += f"; inside the pieces it would save at most {100 * max(gains):.2g} % of the step"
        notes.append(text)
    if varied.kind.breakpoints == "listed":
        notes.append("each value is solved by itself; nothing is said of the values between")
    if varied.name == "bandwidth":
        notes.append(f"the bandwidth of level {varied.level} is per device and one way, whatever the file counts")
    if varied.name == "sequence_length" and inputs.facts.run.mean_square_length is not None:
        notes.append("the run's mean_square_length stays as it is")
    cut = [sample.value for sample in sampler.samples.values() if not sample.found.complete]
    if cut or sampler.unsolved:
        shown = ", ".join(varied.written(value) for value in sorted({*cut, *sampler.unsolved})[:6])
        notes.append(f"{_why(sampler.interrupted)}: not solved to the end: {shown}")
    return notes


def _result(varied: Varied, inputs: Inputs, pieces: list[Piece], **rest: Any) -> Sensitivity:
    values = [piece.low for piece in pieces] + [piece.high for piece in pieces]
    low, high = (varied.values[0], varied.values[-1]) if varied.is_range or not values else (min(values), max(values))
    return Sensitivity(
        over=varied.full_name,
        unit=varied.kind.unit,
        low=low,
        high=high,
        breakpoints=varied.kind.breakpoints,
        pieces=pieces,
        provenance=provenance_of(inputs.named, inputs.devices),
        **rest,
    )
