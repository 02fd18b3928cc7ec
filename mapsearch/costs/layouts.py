"""What a search may choose from for the stages of a pipeline: how to cut its layers, and on which stages to recompute.

Contents: cuts_of, ends_cut, family, splits_of.

A layout is a cut (`stages.Cut`). A word names a rule that gives the cuts of any pipeline; a list of numbers is a cut
by itself, for pipelines with as many chunks. The family is described in docs/explanation/formulation.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mapsearch.arrays import remembered
from mapsearch.axes import Schedule
from mapsearch.costs.stages import TWO_CHUNK_SCHEDULES, Cut, chunks_of, cut_weights, partition, usual_cut
from mapsearch.inventories.model import Model
from mapsearch.inventories.run import Run

STEEP = 2
"""Layers beyond an equal share that the fullest stage of a steep layout may take."""
FEWER_FIRST, FEWER_LAST = 2, 3
"""Layers that the first and the last stage may have less than the fullest one in a level layout."""


def cuts_of(pp: int, schedule: int, choices: Sequence[str | Sequence[int]], *, model: Model, run: Run) -> list[Cut]:
    """The distinct cuts of one pipeline among the choices, in their order; the usual one is written as ().

    Axes: pp, schedule. Lists of another length, or that do not add up to the model's layers, are left out; one stage
    has nothing to cut.
    """
    written = tuple(choice if isinstance(choice, str) else tuple(choice) for choice in choices)
    return list(_cuts(model, run, pp, schedule, written))


@remembered(2)
def _cuts(model: Model, run: Run, pp: int, schedule: int, choices: tuple[str | Cut, ...]) -> tuple[Cut, ...]:
    chunks = chunks_of(pp, schedule)
    if pp == 1 or model.layers < chunks:
        return ((),)
    told = {"model": model, "length": run.attended_length, "vocabulary": run.vocabulary}
    usual = usual_cut(pp, schedule, **told)  # type: ignore[arg-type]
    # Only on a pipeline in one direction do later stages hold fewer microbatches.
    straight = schedule not in TWO_CHUNK_SCHEDULES and schedule != Schedule.DUALPIPE
    found: list[Cut] = []
    for choice in choices:
        if not isinstance(choice, str):
            whole = len(choice) == chunks and sum(choice) == model.layers
            inner = choice[1:-1] if chunks > 2 else ()
            found += [choice] if whole and min(choice) >= 0 and min(inner, default=1) > 0 else []
        elif choice == "auto":
            found.append(usual)
        elif choice == "flop":
            weights, tail = cut_weights(model, run.attended_length, run.vocabulary)
            found.append(partition(weights, tail, chunks))
        elif choice == "ends":
            found.append(ends_cut(model.layers, chunks) or usual)
        else:
            found += [usual, *(family(model.layers, chunks) if straight else [])]
    return tuple(dict.fromkeys(() if cut == usual else cut for cut in found))


def ends_cut(layers: int, chunks: int) -> Cut | None:
    """Embedding and loss counted as one layer each; what does not divide is missing on the earliest stages between.

    None where the ends would be left without a layer. Source: as `stages.usual_cut`.
    """
    most = -(-(layers + 2) // chunks)
    if chunks == 2:
        return (layers // 2, layers - layers // 2)
    return _filled(most - 1, most, most - 1, layers, chunks) if most > 1 else None


def _filled(first: int, most: int, last: int, layers: int, chunks: int) -> Cut | None:
    """First and last stage as given, the others `most` or, on the earliest of them, one less; None where that fails."""
    inner = chunks - 2
    spare = most * inner - (layers - first - last)
    if not 0 <= spare < inner or (spare and most == 1):
        return None
    return (first, *(most - 1,) * spare, *(most,) * (inner - spare), last)


def family(layers: int, chunks: int) -> list[Cut]:
    """The cuts of a straight pipeline that trade time for memory, or even out its ends; balanced ones first.

    Level: with K the equal share rounded up, or one more, all (first, last) down to (K - 2, K - 3), every other stage
    with K or K - 1 layers, the smaller ones first. Steep: K + 1 and K + 2 layers at most, as many on each stage as
    keeps the product of layers and microbatches in flight (F3.5: p - r) below the least bound that places all layers.
    """
    share = -(-layers // chunks)
    found: list[Cut] = []
    if chunks == 2:
        firsts = sorted(range(1, layers), key=lambda n: abs(2 * n - layers))
        return [(first, layers - first) for first in firsts if max(first, layers - first) <= share + STEEP]
    for most in (share, share + 1):
        for first in range(most, max(most - FEWER_FIRST, 1) - 1, -1):
            for last in range(most, max(most - FEWER_LAST, 1) - 1, -1):
                cut = _filled(first, most, last, layers, chunks)
                found += [cut] if cut else []
    for most in range(share + 1, share + 1 + STEEP):
        cut = _steep(most, layers, chunks)
        found += [cut] if cut else []
    return list(dict.fromkeys(found))


def _steep(most: int, layers: int, chunks: int) -> Cut | None:
    """At most so many layers on a stage, the most on late ones: the least largest product with those in flight."""
    levels = sorted({count * (chunks - stage) for stage in range(chunks) for count in range(1, most + 1)})
    for level in levels:
        counts = [min(most, level // (chunks - stage)) for stage in range(chunks)]
        if min(counts) >= 1 and sum(counts) >= layers:
            break
    else:
        return None
    for stage in range(chunks):
        counts[stage] -= min(sum(counts) - layers, counts[stage] - 1)
    return tuple(counts)


def splits_of(pp: int, schedule: int, choices: Sequence[str | int], recompute: Iterable[int]) -> list[int]:
    """The distinct numbers of first stages that alone may recompute, in the order of the choices; 0: all stages.

    Axes: pp, schedule, recompute. As many as there are stages are all of them. One stage, no recompute, and V-shaped
    and bidirectional schedules, whose early stages hold no more than late ones, know no other.
    """
    straight = schedule not in TWO_CHUNK_SCHEDULES and schedule != Schedule.DUALPIPE
    if pp == 1 or not straight or not any(recompute):
        return [0]
    words = {"all": 0, "half": -(-pp // 2)}
    counts = (words[choice] if isinstance(choice, str) else choice for choice in choices)
    return list(dict.fromkeys(count if count < pp else 0 for count in counts))
