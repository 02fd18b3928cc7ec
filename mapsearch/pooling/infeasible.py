"""Why no pair of mappings fits any division: minimal conflicts over both sides, and least changes, solved again.

Contents: PoolsInfeasibility, explain_infeasible, fits, pair_text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from mapsearch.answer import Conflict, Relaxation
from mapsearch.pooling.conflicts import JointConflicts, JointProbe, joint_conflicts, told_conflict
from mapsearch.pooling.least import least_value
from mapsearch.pooling.levers import PoolLever, limit_levers
from mapsearch.pooling.problem import Pools
from mapsearch.pooling.split import Pair, best_pair, offer_bounds
from mapsearch.solver.explain.probe import OutOfTime, Probe
from mapsearch.solver.explain.sentences import described
from mapsearch.solver.problem import problem_of

SHARE = 0.005
"""To which share of its value the least change of a number is found."""


@dataclass
class PoolsInfeasibility:
    """What is known of why nothing fits; the fields of an answer."""

    conflicts: list[Conflict] = field(default_factory=list)
    conflicts_complete: bool = False
    relaxations: list[Relaxation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        """The fields of an answer."""
        return {name: getattr(self, name) for name in asdict(self)}


def explain_infeasible(pools: Pools, *, deadline: float | None = None, conflicts: int = 1) -> PoolsInfeasibility:
    """Up to so many minimal conflicts, and the least change of each input that eases one constraint of every one.

    When the time ends, or the user stops it, what was found until then is returned with a note.
    """
    told, found = PoolsInfeasibility(), JointConflicts()
    try:
        probe = JointProbe(pools, deadline)
        joint_conflicts(probe, conflicts, found)
        told.conflicts_complete = found.complete
        told.conflicts = [told_conflict(probe, core) for core in found.cores]
        for one in _relaxations(pools, found.cores, deadline):
            told.relaxations.append(one)
    except OutOfTime:
        told.notes.append("the time limit ended the explanation early: more changes may help")
    except KeyboardInterrupt:
        told.notes.append("interrupted: the explanation is not complete, and more changes may help")
    return told


def _relaxations(pools: Pools, cores: list[list[str]], deadline: float | None) -> Iterator[Relaxation]:
    for lever in limit_levers(pools):
        if not cores or not all(any(_eased(lever, name) for name in core) for core in cores):
            continue
        found = least_value(lever, lambda value, lever=lever: fits(lever.at(value), deadline), SHARE)  # type: ignore[misc]
        if found is None:
            continue
        value, short = found
        result = best_pair(lever.at(value), deadline)
        if not result.complete:
            raise OutOfTime
        if result.best is not None:
            yield Relaxation(
                lever=lever.words(value),
                relation=next(name for name in cores[0] if _eased(lever, name)),
                from_value=lever.now,
                to_value=value,
                unit=lever.unit,
                mapping=pair_text(result.best),
                step_time_s=result.best.step_s,
                name=lever.name,
                choice=lever.choice,
                fails_at=short,
            )


def _eased(lever: PoolLever, name: str) -> bool:
    return any(name.startswith(one) if one.endswith(".") else name == one for one in lever.eases)


def pair_text(pair: Pair) -> str:
    """A pair in a line: devices of both sides, the training mapping, the replicas."""
    part, shape = pair.part, pair.offer.shape
    replicas = f"{pair.offer.replicas} x TP{shape.tp} DP{shape.dp} EP{shape.ep}"
    trained = f"{part.training.fabric.devices:,} train: {described(pair.mapping)}"
    return f"{trained}; {part.rollout_devices:,} roll out: {replicas}"


def fits(pools: Pools, deadline: float | None = None) -> bool:
    """Whether some pair fits some division; those with the most training devices first. Raises OutOfTime."""
    for part in reversed(pools.parts()):
        offers = pools.server.offers(part.serving)
        if not any(math.isfinite(bound) for bound in offer_bounds(pools, part, offers)):
            continue
        # A probe looks at memory before it looks at times: most questions end there.
        problem = problem_of(part.training)
        if Probe(problem, deadline).fits(problem) is not None:
            return True
    return False
