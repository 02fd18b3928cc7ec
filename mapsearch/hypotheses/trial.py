"""One rule of thumb on trial: the fastest mapping that follows it against the fastest that does not.

Contents: Rule, Trial, judged, inapplicable, bounded, product_bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mapsearch.answer import ErrorBand, RankedMapping
from mapsearch.comparing import gains_and_losses, terms
from mapsearch.constraints.user import side_of
from mapsearch.costs.estimate import point_of
from mapsearch.costs.views import Facts
from mapsearch.guideline import Guideline
from mapsearch.relation import Relation
from mapsearch.solver.alternatives import fastest
from mapsearch.solver.explain.binding import difference
from mapsearch.solver.explain.probe import Probe
from mapsearch.solver.problem import Problem, problem_of
from mapsearch.solver.ranking import mapping_of, ranked_mapping
from mapsearch.solver.top import Candidate

SAME = 1e-9
"""Share of a step by which two of the same mapping may differ, added up in another order."""
UNRANKED = 0


@dataclass(frozen=True)
class Rule:
    """A rule of thumb as it is written, and how it is tried."""

    name: str
    statement: str
    source: str
    ask: Callable[[Trial, Rule], Guideline]


@dataclass
class Trial:
    """The questions that rules of thumb ask of one problem; equal ones are searched once."""

    problem: Problem
    best: Candidate
    band: ErrorBand | None
    deadline: float | None
    _known: dict[Any, Candidate | None] = field(default_factory=dict)

    @property
    def facts(self) -> Facts:
        """Model, run, cluster and profile."""
        return self.problem.facts

    def fastest(
        self, *rules: Relation, free: Iterable[str] = (), offered: Mapping[str, Sequence[int]] | None = None
    ) -> Candidate | None:
        """The fastest mapping under more rules, without those named `free`, and with other values of some choices.

        None when nothing fits. Raises OutOfTime.
        """
        dropped, lists = frozenset(free), {axis: tuple(values) for axis, values in (offered or {}).items()}
        asked = (tuple(sorted(rule.statement for rule in rules)), dropped, tuple(sorted(lists.items())))
        if asked not in self._known:
            self._known[asked] = fastest(self._with(rules, dropped, lists), self.deadline)
        return self._known[asked]

    def fits(self, *rules: Relation) -> bool:
        """Whether anything fits under more rules. Raises OutOfTime."""
        return Probe(self.problem, self.deadline).fits(self._with(rules, frozenset(), {})) is not None

    def under(self, **changes: Any) -> Trial:
        """The same questions of another run. Raises InputError for what the run cannot be."""
        problem = problem_of(replace(self.facts, run=self.facts.run.replaced(**changes)))
        return Trial(problem, self.best, self.band, self.deadline)

    def _with(self, rules: Iterable[Relation], dropped: frozenset[str], offered: dict[str, tuple[int, ...]]) -> Problem:
        relations = (*(r for r in self.problem.relations if r.name not in dropped), *rules)
        return replace(self.problem, relations=relations, offered={**self.problem.offered, **offered})

    def ranked(self, candidate: Candidate, facts: Facts | None = None) -> RankedMapping:
        """A mapping with everything that is estimated of it."""
        point = point_of(mapping_of(candidate), facts or self.facts)
        return ranked_mapping(UNRANKED, point, self.problem.relations)


def inapplicable(rule: Rule, why: str) -> Guideline:
    """A rule of thumb whose premise is not given, or that nothing follows."""
    return Guideline(
        name=rule.name,
        statement=rule.statement,
        source=rule.source,
        outcome="does not apply",
        sentences=[why],
    )


def judged(
    trial: Trial,
    rule: Rule,
    follows: Candidate | None,
    breaks: Candidate | None,
    *,
    words: tuple[str, str],
    other: Trial | None = None,
) -> Guideline:
    """What came of it; `words` name both sides, `other` is the trial that the second side was found in."""
    about: dict[str, Any] = {"name": rule.name, "statement": rule.statement, "source": rule.source}
    one, two = words
    if follows is None:
        missing = "does not fit either" if breaks is None else f"{two} takes {breaks.step_time_s:,.4g} s"
        return inapplicable(rule, f"nothing that fits has {one}; {missing}")
    if breaks is None:
        told = f"{one}: {follows.step_time_s:,.4g} s; nothing that fits has {two}"
        return Guideline(**about, outcome="holds", follows_s=follows.step_time_s, sentences=[told])
    mine, theirs = trial.ranked(follows), (other or trial).ranked(breaks)
    by = mine.step_time_s / theirs.step_time_s - 1.0
    holds = by <= SAME
    near = 0.0 if trial.band is None else trial.band.order_share
    apart = abs(by) <= SAME or max(by, 1.0 / (1.0 + by) - 1.0) > near
    about |= {
        "outcome": "holds" if holds else "does not hold",
        "follows_s": mine.step_time_s,
        "breaks_s": theirs.step_time_s,
        "by": 0.0 if abs(by) <= SAME else by,
        "told_apart": apart,
        "difference": difference(follows.key, breaks.key),
        "parts": terms([mine.breakdown_s, theirs.breakdown_s], [mine.step_time_s, theirs.step_time_s], "step time"),
        "example": None if holds else theirs,
    }
    return Guideline(**about, sentences=_told(about, one, two))


def _told(about: dict[str, Any], one: str, two: str) -> list[str]:
    """The finding in words: both step times, and where the difference comes from."""
    by, mine, theirs = about["by"], about["follows_s"], about["breaks_s"]
    longer = f"{100.0 * (by if by > 0.0 else 1.0 / (1.0 + by) - 1.0):.3g} % longer"
    if by == 0.0:
        return [f"the fastest mapping of all has {one}: {mine:,.4g} s"]
    first = f"{one}: {mine:,.4g} s; {two}: {theirs:,.4g} s"
    said = [f"{first}, {longer}" if by < 0.0 else f"{first}, so following it takes {longer}"]
    if not about["told_apart"]:
        said.append("the two are closer than the estimate can tell apart")
    more, less = gains_and_losses(about["parts"], 3, 3)
    parts = [f"spends more on {more}"] * bool(more) + [f"saves {less}"] * bool(less)
    return [*said, f"the latter ({about['difference']}) {' and '.join(parts)}"] if parts else said


def bounded(axis: str, *, least: float | None = None, most: float | None = None) -> Relation:
    """The rule that an axis has at least, or at most, a value."""
    return product_bounded((axis,), least=least, most=most)


def product_bounded(axes: tuple[str, ...], *, least: float | None = None, most: float | None = None) -> Relation:
    """The rule that the product of some axes of one side has at least, or at most, a value."""
    sign, bound = (1.0, most) if least is None else (-1.0, least)
    assert bound is not None
    word = "*".join(axis.upper() for axis in axes)

    def product(view: Any) -> Any:
        found = 1.0
        for axis in axes:
            found = found * getattr(view, axis)
        return found

    statement = f"{word} is {'at most' if sign > 0.0 else 'at least'} {bound:g}"
    return Relation(
        name=f"tried_{'_'.join(axes)}_{'most' if sign > 0.0 else 'least'}",
        side=side_of(axes[0]),
        unit=word,
        demand=lambda view: sign * product(view),
        limit=lambda _view: sign * bound,
        sentence=lambda _view, demand, _limit: f"{statement}; here it is {sign * demand:g}",
        origin="user",
        statement=statement,
    )
