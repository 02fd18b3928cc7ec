"""H1, H4, H5: how large each axis should be.

Contents: SIZES.
"""

from __future__ import annotations

from mapsearch.guideline import Guideline
from mapsearch.hypotheses.trial import Rule, Trial, bounded, inapplicable, judged
from mapsearch.solver.ranking import KEY

LONG = 8192
"""Tokens of a sequence from which on context parallelism is advised (FORMULAS 2.2)."""
_GUIDE = "Megatron Core MoE guide, step 2 (FORMULAS 2.2)"


def _smallest(axis: str) -> Rule:
    def ask(trial: Trial, rule: Rule) -> Guideline:
        size = _least(trial, axis)
        follows = trial.fastest(bounded(axis, most=size))
        breaks = trial.fastest(bounded(axis, least=size + 1))
        words = f"{axis.upper()} {size}, the smallest that fits", f"{axis.upper()} above {size}"
        return judged(trial, rule, follows, breaks, words=words)

    return Rule(f"smallest {axis.upper()}", f"take the smallest {axis.upper()} that fits", f"H1: {_GUIDE}", ask)


def _least(trial: Trial, axis: str) -> int:
    """The smallest value of a size with which something fits; what fits with at most n fits with at most n + 1."""
    low, high = 0, int(trial.best.key[KEY.index(axis)])
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if trial.fits(bounded(axis, most=middle)) else (middle, high)
    return high


def _largest_dp(trial: Trial, rule: Rule) -> Guideline:
    low, high = int(trial.best.key[KEY.index("dp")]), min(trial.facts.fabric.devices, trial.facts.run.global_batch) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if trial.fits(bounded("dp", least=middle)) else (low, middle)
    follows = trial.fastest(bounded("dp", least=low))
    breaks = trial.fastest(bounded("dp", most=low - 1)) if low > 1 else None
    return judged(trial, rule, follows, breaks, words=(f"DP {low}, the largest that fits", f"DP below {low}"))


def _sharded_optimizer(trial: Trial, rule: Rule) -> Guideline:
    values = tuple(dict.fromkeys((*(z for z in trial.problem.candidates["zero"] if z), 1)))
    follows = trial.fastest(offered={"zero": values})
    return judged(
        trial, rule, follows, trial.fastest(offered={"zero": (0,)}),
        words=("optimizer states sharded over data-parallel ranks", "whole optimizer states on every rank"),
    )  # fmt: skip


def _experts_whole(trial: Trial, rule: Rule) -> Guideline:
    if not trial.facts.model.moe:
        return inapplicable(rule, "the model has no experts")
    follows, breaks = trial.fastest(bounded("etp", most=1)), trial.fastest(bounded("etp", least=2))
    return judged(trial, rule, follows, breaks, words=("ETP 1", "ETP 2 or more"))


def _context(trial: Trial, rule: Rule) -> Guideline:
    length = trial.facts.run.sequence_length
    split, whole = trial.fastest(bounded("cp", least=2)), trial.fastest(bounded("cp", most=1))
    if length >= LONG:
        return judged(trial, rule, split, whole, words=(f"CP 2 or more at {length:,} tokens", "CP 1"))
    return judged(trial, rule, whole, split, words=(f"CP 1 at {length:,} tokens", "CP 2 or more"))


SIZES = (
    *(_smallest(axis) for axis in ("tp", "ep", "pp")),
    Rule("largest DP", "take the largest DP that is left", f"H1: {_GUIDE}", _largest_dp),
    Rule("distributed optimizer", "shard the optimizer states over data-parallel ranks", f"H1: {_GUIDE}",
         _sharded_optimizer),
    Rule("EP over ETP", "cut experts by EP, not by ETP", f"H4: {_GUIDE}", _experts_whole),
    Rule("CP from 8K", "use CP from 8,192 tokens on, and not below", f"H5: {_GUIDE}", _context),
)  # fmt: skip
