"""A loop judged: steady state, constraints, simulation beside the formulas, and what each policy costs.

Contents: facts_of, judge_loop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import get_args

from mapsearch.costs.lengths import distribution
from mapsearch.errors import InputError
from mapsearch.inventories.loop import Loop
from mapsearch.loop import Agreement, LoopPoint, LoopReport, PolicyCost, QueuePoint, SteadyState
from mapsearch.looping.constraints import constraints_of
from mapsearch.looping.facts import LoopFacts, Policy
from mapsearch.looping.measured import Measured, growing, measured
from mapsearch.looping.simulator import Trace, simulate
from mapsearch.looping.steady import Steady, steady

MOST_TRAJECTORIES = 5e6
"""Of one simulation: some tens of seconds."""
_NEAR, _WINDOW = 0.05, 10
_COMPARED = {
    "step_s": "s", "wait_s": "s", "duty": "share", "consumed_tokens_per_s": "tokens/s",
    "effective_tokens_per_s": "tokens/s", "rollout_use": "share", "dropped_share": "share",
    "queue_mean_tokens": "tokens", "queue_delay_s": "s", "age_mean_s": "s", "lag_mean": "versions",
}  # fmt: skip


def facts_of(loop: Loop, *, train_s: float | None = None, batch_tokens: float | None = None) -> LoopFacts:
    """The numbers of a record; step and batch where it leaves them to an answer. Raises InputError."""
    step = loop.training.step if loop.training.step is not None else train_s
    batch = loop.training.batch_tokens if loop.training.batch_tokens is not None else batch_tokens
    if step is None or batch is None:
        raise InputError("names an answer whose step and batch were not read", field="training.answer")
    rollout, publish, queue, budget = loop.rollout, loop.publish, loop.queue, loop.budget
    return LoopFacts(
        batch_tokens=batch,
        train_s=step,
        rollout_tokens_per_s=rollout.tokens_per_s,
        concurrency=rollout.concurrency,
        lengths=distribution(rollout.lengths),
        replicas=rollout.replicas,
        publish_s=publish.time,
        publish_stall_s=publish.stall,
        pause_s=publish.pause,
        speed_cv=rollout.spread,
        kept_share=rollout.kept_share,
        least_queue_tokens=queue.least,
        most_queue_tokens=_or_inf(queue.most),
        most_versions=_or_inf(budget.versions),
        most_age_s=_or_inf(budget.age),
        most_lag_tokens=_or_inf(budget.tokens),
        policy=loop.policy,
        decay=loop.decay if loop.decay is not None else 1.0,
        publishing=publish.order,
        every=publish.every,
        switching=publish.switch,
    )


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else float(value)


def judge_loop(
    facts: LoopFacts,
    *,
    name: str = "loop",
    steps: int = 200,
    seed: int = 0,
    weighted: bool = True,
    assumptions: Sequence[str] = (),
) -> LoopReport:
    """A loop by formula and by simulation. Pure: the same facts, steps and seed give the same report.

    `weighted`: False where `decay` is not known, so that `down-weight` has no effective rate.
    Raises InputError when the simulation would take more than `MOST_TRAJECTORIES`.
    """
    _check_size(facts, steps)
    state, trace = steady(facts), _run(facts, steps, seed)
    found = measured(facts, trace)
    stable = not state.grows
    return LoopReport(
        name=name,
        policy=facts.policy,
        batch_tokens=facts.batch_tokens,
        train_s=facts.train_s,
        publish_s=facts.publish_s,
        steady=SteadyState(**{key: _finite(value) for key, value in asdict(state).items()}),
        constraints=constraints_of(facts, state, found),
        simulated_grows=growing(facts, trace),
        agreement=_agreement(state, found) if stable and found else [],
        settled_s=_settled_s(state, trace) if stable else None,
        policies=_policies(facts, trace, steps, seed, weighted),
        steps=_points(facts, trace),
        queue=[QueuePoint(**moment._asdict()) for moment in trace.moments],
        budget_versions=_finite(facts.versions_allowed),
        budget_age_s=_finite(facts.most_age_s),
        seed=seed,
        assumptions=list(assumptions),
        notes=_notes(facts, state),
    )


def _run(facts: LoopFacts, steps: int, seed: int) -> Trace:
    """The simulation, which waits longer than by default where steps are long since little survives."""
    step = steady(facts).step_s
    return simulate(facts, steps=steps, seed=seed, patience_s=30.0 * step if math.isfinite(step) else None)


def _check_size(facts: LoopFacts, steps: int) -> None:
    each = facts.made_per_step
    if steps * each > MOST_TRAJECTORIES:
        raise InputError(
            f"{steps:,} steps are {steps * each:,.0f} trajectories, more than {MOST_TRAJECTORIES:,.0f}; "
            f"simulate at most {int(MOST_TRAJECTORIES / each):,} steps, or scale batch_tokens, "
            "tokens_per_s and concurrency down together",
            field="run.steps",
        )


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _agreement(state: Steady, found: Measured) -> list[Agreement]:
    rows = []
    for name, unit in _COMPARED.items():
        formula, simulated = getattr(state, name), getattr(found, name)
        # A wait, or a share thrown away, may be nothing: it is held against the whole step, or against all.
        whole = {"wait_s": state.step_s, "dropped_share": 1.0}.get(name, formula)
        apart = (simulated - formula) / whole if formula is not None and whole else None
        rows.append(Agreement(quantity=name, unit=unit, formula=formula, simulated=simulated, apart=apart))
    return rows


def _settled_s(state: Steady, trace: Trace) -> float | None:
    """When the mean of ten steps has come near the steady step for good."""
    taken = [batch.taken_s for batch in trace.batches]
    means = [(later - now) / _WINDOW for now, later in zip(taken, taken[_WINDOW:], strict=False)]
    near = [abs(mean / state.step_s - 1.0) <= _NEAR for mean in means]
    far = max((place for place, good in enumerate(near) if not good), default=-1)
    return taken[far + 1] if far + 1 < len(near) else None


def _policies(facts: LoopFacts, own: Trace, steps: int, seed: int, weighted: bool) -> list[PolicyCost]:
    """The three policies on the same draws; none when nothing limits the age."""
    if math.isinf(facts.versions_allowed) and math.isinf(facts.most_age_s):
        return []
    free = replace(facts, policy="down-weight", decay=1.0)
    base = measured(free, _run(free, steps, seed))
    rows = []
    for policy in get_args(Policy):
        one = replace(facts, policy=policy)
        trace = own if policy == facts.policy else _run(one, steps, seed)
        rows.append(_policy(one, trace, base, known=weighted or policy != "down-weight"))
    return rows


def _policy(facts: LoopFacts, trace: Trace, base: Measured | None, *, known: bool) -> PolicyCost:
    found, grows = measured(facts, trace), growing(facts, trace)
    if found is None:
        return PolicyCost(
            policy=facts.policy, grows=grows, step_s=None, wait_s=None, consumed_tokens_per_s=0.0,
            effective_tokens_per_s=0.0, cost=1.0, rollout_use=0.0, dropped_share=1.0, over_share=0.0, lag_mean=0.0,
            lag_most=0, age_mean_s=0.0,
        )  # fmt: skip
    effective = found.effective_tokens_per_s if known else None
    lost = 1.0 - effective / base.consumed_tokens_per_s if base and effective is not None else None
    same = ("step_s", "wait_s", "consumed_tokens_per_s", "rollout_use", "dropped_share", "over_share", "lag_mean",
            "lag_most", "age_mean_s")  # fmt: skip
    told = {name: getattr(found, name) for name in same}
    return PolicyCost(policy=facts.policy, grows=grows, effective_tokens_per_s=effective, cost=lost, **told)


def _points(facts: LoopFacts, trace: Trace) -> list[LoopPoint]:
    same = ("taken_s", "waited_s", "lag_mean", "lag_most", "age_mean_s", "age_most_s", "weight")
    return [
        LoopPoint(token_lag_mean=batch.lag_mean * facts.batch_tokens, **{name: getattr(batch, name) for name in same})
        for batch in trace.batches
    ]


def _notes(facts: LoopFacts, state: Steady) -> list[str]:
    notes = []
    if state.approximate:
        notes.append("the closed form is an estimate here (docs/how-to/loop.md): go by the simulation")
    if facts.policy == "wait" and math.isfinite(facts.versions_allowed):
        notes.append("pacing counts the tokens of trajectories under way as if their lengths were known")
    return notes
