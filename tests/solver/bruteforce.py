"""An independent search: plain loops over every mapping, each costed alone. It shares no enumeration, table, bound or
pruning with `mapsearch.solver`; only the estimate of one mapping and the relations' margins.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from mapsearch.axes import Hidden, Schedule, written
from mapsearch.costs.estimate import layout_trouble, number, point_of
from mapsearch.costs.layouts import cuts_of, splits_of
from mapsearch.costs.views import Facts
from mapsearch.inventories.mapping import Mapping
from mapsearch.solver.problem import problem_of
from mapsearch.solver.ranking import KEY, margins, pair_view
from mapsearch.topologies.fabric import Fabric

Row = tuple[int, ...]
Found = tuple[float, tuple[int, ...]]


def splits(number: int, parts: int) -> Iterator[Row]:
    """All ways to write a number as an ordered product."""
    if parts == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            for rest in splits(number // first, parts - 1):
                yield (first, *rest)


def used_units(size: int) -> set[int]:
    """All units of a level, or the largest power of two of them."""
    power = 1
    while 2 * power <= size:
        power *= 2
    return {size, power}


def used_fan_outs(fabric: Fabric) -> list[Row]:
    """Units of every level that a mapping may use; of an irregular cluster, any count down to the power of two below.

    There, less than half of the devices of the largest regular part is too little. For levels of fewer than 16 units.
    """
    if not fabric.cores:
        return list(itertools.product(*(sorted(used_units(level.size)) for level in fabric.levels)))
    found: set[Row] = set()
    for core in fabric.cores:
        found |= set(itertools.product(*(range(min(used_units(size)), size + 1) for size in core)))
    return sorted(used for used in found if 2 * product(used) >= max(map(product, fabric.cores)))


def placements(facts: Facts, fan_outs: Iterable[Row] | None = None) -> Iterator[dict[str, Row]]:
    """Rows of all seven axes: on every level both grids cut the same units, and share the pipeline's cut."""
    moe = facts.model.moe is not None
    for used in fan_outs or used_fan_outs(facts.fabric):
        per_level = []
        for units in used:
            attention = list(splits(units, 4))
            expert = [row for row in splits(units, 4) if moe or row[0] == row[1] == 1]
            per_level.append([(a, e) for a in attention for e in expert if a[3] == e[3]])
        for cuts in itertools.product(*per_level):
            rows = {name: tuple(a[i] for a, _ in cuts) for i, name in enumerate(("tp", "cp", "dp", "pp"))}
            rows |= {name: tuple(e[i] for _, e in cuts) for i, name in enumerate(("etp", "ep", "edp"))}
            yield rows


def product(row: Row) -> int:
    result = 1
    for factor in row:
        result *= factor
    return result


def pipelines(facts: Facts, pp: int) -> list[tuple[int, int]]:
    """Schedule and VPP: a single stage has nothing to schedule, and only interleaving takes virtual stages."""
    plain = [s for s in facts.run.schedule if s != Schedule.INTERLEAVED]
    if pp == 1:
        return [(plain[0] if plain else int(Schedule.ONE_F_ONE_B), 1)]
    pairs = [(s, 1) for s in plain]
    if Schedule.INTERLEAVED in facts.run.schedule:
        pairs += [(int(Schedule.INTERLEAVED), v) for v in facts.run.vpp if v > 1]
    return pairs


def overlaps(facts: Facts) -> list[int]:
    """What the run leaves open to overlap; a dense model has no expert all-to-all, so the first of equals stands."""
    found: list[int] = []
    for code in facts.run.overlap.codes:
        bits = ~0 if facts.model.moe else ~Hidden.EXPERT_ALL_TO_ALL
        if all((code ^ other) & bits for other in found):
            found.append(code)
    return found


def variants(facts: Facts, rows: dict[str, Row]) -> Iterator[dict[str, int]]:
    """Every choice; how CP exchanges matters only with CP, and the dispatcher only where tokens move."""
    run, size = facts.run, {axis: product(row) for axis, row in rows.items()}
    kinds = run.cp_kind if size["cp"] > 1 else run.cp_kind[:1]
    dispatchers = run.dispatcher if size["ep"] > 1 or size["etp"] > 1 else run.dispatcher[:1]
    lists = (run.micro_batch, pipelines(facts, size["pp"]), run.recompute, run.zero, run.offload, kinds, dispatchers)
    lists = (*lists, overlaps(facts))
    for micro_batch, (schedule, vpp), recompute, zero, offload, kind, dispatcher, overlap in itertools.product(*lists):
        choice = {"micro_batch": micro_batch, "schedule": schedule, "vpp": vpp, "recompute": recompute, "zero": zero}
        yield {**size, **choice, "offload": offload, "cp_kind": kind, "dispatcher": dispatcher, "overlap": overlap}


def mappings(facts: Facts, fan_outs: Iterable[Row] | None = None) -> Iterator[Mapping]:
    names = facts.fabric.level_names
    for rows in placements(facts, fan_outs):
        placement = {axis: dict(zip(names, row, strict=True)) for axis, row in rows.items()}
        for values in variants(facts, rows):
            named = {axis: written(axis, value) for axis, value in values.items()}
            told = {"model": facts.model, "run": facts.run}
            for cut in cuts_of(values["pp"], values["schedule"], facts.run.layout, **told):
                where = {"placement": placement, "layout": list(cut)}
                for split in splits_of(
                    values["pp"], values["schedule"], facts.run.recompute_stages, [values["recompute"]]
                ):
                    yield Mapping.model_validate({**named, **where, "recompute_stages": split})


def every(facts: Facts) -> dict[tuple[int, ...], float]:
    """Best step time of every distinct feasible mapping."""
    relations = problem_of(facts).relations
    pair = [relation for relation in relations if relation.side == "pair"]
    best: dict[tuple[int, ...], float] = {}
    for mapping in mappings(facts):
        point = point_of(mapping, facts)
        alone = margins(point, relations, sides=("cell", "attention", "expert"))
        if layout_trouble(point) or any(margin.margin < 0 for margin in alone):
            continue
        view = pair_view(point)
        if all(number(relation.demand(view)) <= number(relation.limit(view)) for relation in pair):
            key = tuple(int(getattr(mapping, axis)) for axis in KEY)
            best[key] = min(best.get(key, float("inf")), view.step_time_s)
    return best


def ranking(facts: Facts, k: int) -> list[Found]:
    """The k fastest distinct mappings as (step time, key)."""
    return sorted((seconds, key) for key, seconds in every(facts).items())[:k]
