"""The pair of pools that `rollout` found as a loop, and what its simulation says of it.

Contents: loop_facts, judge_pools.
"""

from __future__ import annotations

import math
from dataclasses import replace

from mapsearch.costs.lengths import distribution
from mapsearch.errors import InputError
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.rollout import Rollout
from mapsearch.loop import LoopReport
from mapsearch.looping.api import judge_loop
from mapsearch.looping.facts import LoopFacts
from mapsearch.pooled import TwoPools
from mapsearch.pooling.contracts import read_answer

ENOUGH = 400_000
"""Trajectories of one simulation: a second or two. Fewer replicas, with their share of everything, are simulated."""
NEAR = 0.02
"""Of the step: nearer than this the simulation confirms it."""
_SAME = 1e-6


def loop_facts(answer: TwoPools, rollout: Rollout) -> LoopFacts:
    """The pair of an answer as a loop, with the lengths of its rollout. Raises InputError.

    Samples over age are waited for, the queue is full where admission holds it, and a request's prompt counts in its
    batch but takes no time of its own: prompts are part of the time per token (`costs.pacing.sample_rates`).
    """
    state, plan, publishing = answer.steady, answer.serving, answer.publishing
    if state is None or plan is None or publishing is None:
        raise InputError("holds no pair of mappings, so there is no loop to simulate")
    prompt, responses = distribution(rollout.prompt_tokens).mean, distribution(rollout.response_tokens)
    samples_per_s = plan.tokens_per_s / ((prompt + responses.mean) * rollout.filter_yield)
    replicas = plan.replicas - plan.prefill_replicas
    places = samples_per_s * responses.mean * plan.token_s  # Little
    most = float(replicas * plan.sequences_per_replica)
    if places > most * (1.0 + _SAME) or (plan.prefill_replicas == 0 and places < most * (1.0 - _SAME)):
        raise InputError(f"was found with other lengths or another yield than rollout {rollout.name} has now")
    kind = rollout.publishing.in_flight
    return LoopFacts(
        batch_tokens=state.batch_tokens,
        train_s=state.train_s,
        rollout_tokens_per_s=plan.tokens_per_s / rollout.filter_yield,
        concurrency=max(round(places), replicas),
        lengths=responses.plus(prompt),
        prompt_tokens=prompt,
        replicas=replicas,
        publish_s=publishing.time_s,
        pause_s=0.0 if kind == "side-by-side" else publishing.stages_s["switch"],
        kept_share=rollout.filter_yield,
        least_queue_tokens=state.least_batches * state.batch_tokens,
        most_queue_tokens=(state.held_batches + 1.0) * state.batch_tokens,
        most_versions=float(state.versions),
        every=rollout.publishing.every,
        publishing="every",
        switching=kind,
    )


def judge_pools(file: str, *, steps: int = 200, seed: int = 0) -> LoopReport:
    """The pair of an answer of `rollout --format json`, simulated, beside the step that the search gave it.

    Raises InputError.
    """
    answer = read_answer(file)
    try:
        whole = loop_facts(answer, load_inventory(Rollout, answer.rollout))
    except InputError as problem:
        raise problem.within(file) from None
    facts = with_replicas(whole, _enough(whole, steps))
    found = judge_loop(facts, name=f"{answer.model} · {answer.run} · {answer.rollout}", steps=steps, seed=seed,
                       weighted=False)  # fmt: skip
    searched_s = answer.steady.step_s if answer.steady else math.inf
    notes = [*found.notes, *_sized(whole, facts), *_confirmed(answer, found, searched_s)]
    return found.model_copy(update={"searched_step_s": searched_s, "notes": notes})


def with_replicas(facts: LoopFacts, replicas: int) -> LoopFacts:
    """The same loop on fewer replicas: batch, queue, rate and places in proportion."""
    share = replicas / facts.replicas
    return replace(
        facts,
        replicas=replicas,
        batch_tokens=facts.batch_tokens * share,
        rollout_tokens_per_s=facts.rollout_tokens_per_s * share,
        concurrency=max(round(facts.concurrency * share), replicas),
        least_queue_tokens=facts.least_queue_tokens * share,
        most_queue_tokens=facts.most_queue_tokens * share,
    )


def _enough(facts: LoopFacts, steps: int) -> int:
    """The most replicas whose trajectories are not too many to simulate; one at least."""
    each = facts.made_per_step / facts.replicas
    return max(1, min(facts.replicas, math.floor(ENOUGH / (steps * each))))


def _sized(whole: LoopFacts, facts: LoopFacts) -> list[str]:
    if facts.replicas == whole.replicas:
        return []
    return [
        f"simulated with {facts.replicas:,} of {whole.replicas:,} replicas, and batch, queue and training in proportion"
    ]


def _confirmed(answer: TwoPools, found: LoopReport, searched_s: float) -> list[str]:
    """What the simulation makes of the step that the search found, with the cause where they differ."""
    simulated = next((row.simulated for row in found.agreement if row.quantity == "step_s"), None)
    if simulated is None:
        return [f"the search gave a step of {searched_s:,.4g} s; the simulated loop comes to none"]
    apart = simulated / searched_s - 1.0
    told = f"the search gave a step of {searched_s:,.4g} s, the simulation takes {simulated:,.4g} s ({apart:+.1%})"
    if abs(apart) <= NEAR:
        return [f"{told}: confirmed"]
    return [f"{told}: {_cause(answer, apart)}"]


def _cause(answer: TwoPools, apart: float) -> str:
    state = answer.steady
    if state is None:
        return ""
    others_s = max(state.train_s, state.supply_s, state.repeated_s)
    if apart < 0.0 and state.fresh_s > others_s:
        return (
            "the search keeps even the longest request of a batch within its versions; here shorter ones fill the "
            "batch and stragglers are used over age"
        )
    if apart < 0.0 and state.repeated_s >= others_s:
        return "versions that wait for their publication hold training back once samples are over age, after more steps"
    if apart > 0.0:
        return (
            "requests end in lumps between switches, which the queue is too small to even out, or switches are too "
            "close for requests to be met at random"
        )
    return "switches lose less than requests that are met at random would"
