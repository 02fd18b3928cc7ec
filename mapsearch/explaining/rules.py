"""What rules cost: the fastest mapping without each rule of placement, of a framework, or of the user.

Contents: rule_prices.
"""

from __future__ import annotations

from collections.abc import Iterator

from mapsearch.explaining.levers import fastest_below
from mapsearch.explanation import RulePrice
from mapsearch.relation import Relation
from mapsearch.solver.explain.binding import difference
from mapsearch.solver.problem import Problem
from mapsearch.solver.top import Candidate

OWN = ("physics", "topology")
"""Origins of what nobody can drop."""


def rule_prices(problem: Problem, best: Candidate, deadline: float | None) -> Iterator[RulePrice]:
    """The price of every rule that somebody made: placement and the user's own one by one, then the framework's.

    A framework's rules are dropped together first; one by one only where that gains something.
    """
    made = [rule for rule in problem.relations if rule.origin not in OWN]
    for rule in made:
        if rule.origin in ("placement", "user"):
            yield _price(problem, [rule], best, deadline)
    for framework in dict.fromkeys(rule.origin for rule in made if rule.origin not in ("placement", "user")):
        own = [rule for rule in made if rule.origin == framework]
        together = _price(problem, own, best, deadline)
        yield together
        if together.gain > 0.0 and len(own) > 1:
            yield from (_price(problem, [rule], best, deadline) for rule in own)


def _price(problem: Problem, rules: list[Relation], best: Candidate, deadline: float | None) -> RulePrice:
    free = problem.without(*(rule.name for rule in rules))
    faster, complete = fastest_below(free, best.step_time_s, deadline)
    name, words = rules[0].name, rules[0].words
    if len(rules) > 1:
        name, words = f"{rules[0].origin}'s rules", f"all {len(rules)} rules of {rules[0].origin}"
    step_time_s = faster.step_time_s if faster else best.step_time_s
    return RulePrice(
        relation=name,
        origin=rules[0].origin,
        words=words,
        step_time_s=step_time_s if complete or faster else None,
        gain=1.0 - step_time_s / best.step_time_s,
        unlock=difference(best.key, faster.key) if faster else "",
    )
