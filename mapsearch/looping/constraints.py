"""The four constraints of an asynchronous loop (FORMULAS 1.8), and the three measures of staleness.

Contents: constraints_of.
"""

from __future__ import annotations

import math

from mapsearch.loop import LoopConstraint
from mapsearch.looping.facts import LoopFacts
from mapsearch.looping.measured import Measured
from mapsearch.looping.steady import Steady
from mapsearch.quantity import positive_part

_ROUNDING = 1e-9


def constraints_of(facts: LoopFacts, state: Steady, found: Measured | None) -> list[LoopConstraint]:
    """Supply, publishing, queue bounds, staleness, one version; queue and staleness as simulated (`found`)."""
    rows = [_supply(facts, state), _publish(facts, state)]
    if found is not None:
        rows += [_most(facts, state, found), _least(facts, found), *_staleness(facts, state, found)]
        rows.append(_one_version(facts, found))
    return rows


def _supply(facts: LoopFacts, state: Steady) -> LoopConstraint:
    takes = facts.batch_tokens / (facts.train_s + facts.publish_stall_s)
    makes = facts.batch_tokens / state.supply_s if math.isfinite(state.supply_s) else 0.0
    waits = float(positive_part(state.supply_s - facts.train_s - facts.publish_stall_s))
    holds = makes >= takes * (1.0 - _ROUNDING)
    reason = "rollout makes what training can take" if holds else f"training waits {waits:.4g} s in each step"
    return LoopConstraint(name="supply", holds=holds, demand=takes, limit=makes, unit="tokens/s", reason=reason)


def _publish(facts: LoopFacts, state: Steady) -> LoopConstraint:
    budget = state.publish_budget_s
    holds = None if budget is None else facts.publish_s <= budget * (1.0 + _ROUNDING)
    if state.grows == "versions":
        holds, reason = False, "publishing takes longer than a step, and every version is published"
    elif budget is None:
        reason = "no budget in versions" if math.isinf(facts.versions_allowed) else "the closed form does not tell"
    elif budget < 0.0:
        reason = "generation and queue alone take more than the budget"
    else:
        reason = "keeps a batch's longest trajectory within the budget"
    return LoopConstraint(
        name="publish", holds=holds, demand=facts.publish_s, limit=budget, unit="s", reason=reason
    )  # fmt: skip


def _least(facts: LoopFacts, found: Measured) -> LoopConstraint:
    least, given = found.queue_least_tokens, facts.least_queue_tokens > 0.0
    reason = "least that a step left behind" if given else "no lower bound is given"
    holds = least >= facts.least_queue_tokens - facts.lengths.longest if given else None
    return LoopConstraint(
        name="queue-least",
        holds=holds,
        demand=least,
        limit=facts.least_queue_tokens if given else None,
        unit="tokens",
        reason=reason,
    )


def _most(facts: LoopFacts, state: Steady, found: Measured) -> LoopConstraint:
    given = math.isfinite(facts.most_queue_tokens)
    holds: bool | None = found.queue_most_tokens <= facts.most_queue_tokens + facts.lengths.longest if given else None
    reason = "a trajectory that finds no room waits" if given else "no upper bound is given"
    if state.grows == "samples":
        holds, reason = False, f"nothing bounds the queue, which gains {state.growth_per_s:,.4g} tokens per second"
    return LoopConstraint(
        name="queue-most",
        holds=holds,
        demand=found.queue_most_tokens,
        limit=facts.most_queue_tokens if given else None,
        unit="tokens",
        reason=reason,
    )


def _staleness(facts: LoopFacts, state: Steady, found: Measured) -> list[LoopConstraint]:
    """The three measures of staleness: the oldest that was used, against its budget."""
    measures = (
        ("lag", float(found.lag_most), facts.most_versions, "versions", state.lag_bound),
        ("age", found.age_most_s, facts.most_age_s, "s", state.age_bound_s),
        ("token-lag", found.lag_most * facts.batch_tokens, facts.most_lag_tokens, "tokens", state.token_lag_bound),
    )
    rows = []
    for name, most, budget, unit, bound in measures:
        given = math.isfinite(budget)
        holds = most <= budget * (1.0 + _ROUNDING) if given else None
        shown = "" if bound is None else f"{bound:,.0f}" if bound >= 1000.0 else f"{bound:.4g}"
        told = f", by formula at most {shown} {unit}" if shown else ""
        reason = f"oldest used{told}" + ("" if given else "; no budget")
        if holds is False:
            reason += f"; {found.over_share:.1%} of the used tokens are over a budget"
        rows.append(
            LoopConstraint.model_validate(
                {"name": name, "holds": holds, "demand": most, "limit": budget if given else None, "unit": unit,
                 "reason": reason}
            )
        )  # fmt: skip
    return rows


def _one_version(facts: LoopFacts, found: Measured) -> LoopConstraint:
    """v(prefill) = v(every decode step) = v(every expert) of each trajectory."""
    mixing = facts.switching == "in-flight"
    reason = "share of trajectories with tokens of two versions" if mixing else f"switch: {facts.switching}"
    return LoopConstraint(
        name="one-version", holds=found.mixed_share == 0.0, demand=found.mixed_share, limit=0.0, unit="share",
        reason=reason,
    )  # fmt: skip
