"""Sentences that rules of several frameworks share.

Contents: microbatches, not_interleaved, no_dispatch.
"""

from __future__ import annotations

from mapsearch.constraints.rules import first, whole, word
from mapsearch.costs.views import CellView, ExpertView


def microbatches(c: CellView) -> str:
    """How many microbatches meet how many stages."""
    return f"{first(c.microbatches):,g} microbatches meet PP {c.pp}"


def not_interleaved(c: CellView) -> str:
    """Why a rule of interleaving does not apply; empty when it does."""
    schedule = word("schedule", c.schedule)
    return "" if schedule == "interleaved" else f"the schedule is {schedule}"


def no_dispatch(e: ExpertView) -> str:
    """Why a rule of the expert exchange does not apply; empty when it does."""
    return "EP is 1" if whole(e.ep) == 1 else ""
