"""All placements of a few experts, one by one: the oracle of the solvers, written without their functions."""

from fractions import Fraction
from itertools import combinations

from mapsearch.solver.backends.experts import ExpertProblem


def measured(problem, ranks):
    """Worst rank and traffic of sets of experts by rank, exactly; None when a rule is broken."""
    count = {e: sum(e in held for held in ranks) for e in range(problem.experts)}
    if min(count.values()) == 0:
        return None
    node = [r * problem.nodes // problem.ranks for r in range(problem.ranks)]
    if problem.nodes > 1 and problem.groups > 1:
        size = problem.experts // problem.groups
        homes = {}
        for r, held in enumerate(ranks):
            for e in held:
                homes.setdefault(e // size, set()).add(node[r])
        if any(len(home) > 1 for home in homes.values()):
            return None
        taken = [min(home) for home in homes.values()]
        if any(taken.count(one) * problem.nodes != problem.groups for one in set(node)):
            return None
    share = {e: Fraction(int(problem.loads[e]), count[e]) for e in count}
    worst = max(sum(share[e] for e in held) for held in ranks)
    if problem.off_node is None:
        return worst, Fraction(0)
    traffic = sum(Fraction(int(problem.off_node[e][node[r]]), count[e]) for r, held in enumerate(ranks) for e in held)
    return worst, traffic


def _all(problem, ranks):
    """Every choice of sets that still covers all experts."""
    left = problem.ranks - len(ranks)
    covered = set().union(*ranks) if ranks else set()
    if problem.experts - len(covered) > left * problem.slots:
        return
    if left == 0:
        yield ranks
        return
    for held in combinations(range(problem.experts), problem.slots):
        yield from _all(problem, [*ranks, held])


def best(problem: ExpertProblem):
    """The least worst rank, then the least traffic."""
    values = (measured(problem, ranks) for ranks in _all(problem, []))
    return min(value for value in values if value is not None)
