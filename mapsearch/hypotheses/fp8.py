"""What FP8 does to each wall: the fastest mapping's own bytes and times in 16 bits and in FP8, and both searched.

Contents: FP8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mapsearch.costs.estimate import Estimate, estimate_point, point_of
from mapsearch.costs.volumes import dispatch_element_bytes, gathered_weight_bytes
from mapsearch.guideline import Guideline
from mapsearch.hypotheses.trial import Rule, Trial, inapplicable, judged
from mapsearch.inventories.run import Run
from mapsearch.solver.ranking import mapping_of

_TABLE = "Megatron Core MoE guide, FP8 tables (FORMULAS 2.3)"
WIDE, NARROW = "bf16", "fp8-block"
NEAR = 0.02
"""Difference between an expected and a found share that counts as the same."""
Shares = tuple[float | None, float]
"""Expected and found; an expected None is a bound that the words tell."""


def _fp8_run(run: Run, **state: Any) -> Run:
    """The run in its own FP8 format, or in blocks of FP8."""
    precision = run.precision if run.fp8 else NARROW
    return run.replaced(precision=precision, state=run.state.replaced(**state))


def _estimate(trial: Trial, run: Run) -> Estimate:
    """The fastest mapping under another run."""
    other = trial.under(**{name: getattr(run, name) for name in ("precision", "state")})
    return estimate_point(point_of(mapping_of(trial.best), other.facts))


def _able(trial: Trial) -> str:
    """Why FP8 cannot be tried here; empty when it can."""
    device = trial.facts.fabric.device
    return "" if "fp8" in device.peak_flops else f"{device.name} has no peak for fp8"


def _wall(name: str, statement: str, ask: Callable[[Trial], tuple[bool, Shares, str]]) -> Rule:
    def tried(trial: Trial, rule: Rule) -> Guideline:
        why = _able(trial)
        if why:
            return inapplicable(rule, why)
        holds, (expected, found), told = ask(trial)
        return Guideline(
            name=rule.name,
            statement=rule.statement,
            source=rule.source,
            outcome="holds" if holds else "does not hold",
            expected=expected,
            found=found,
            sentences=[told],
        )

    return Rule(name, statement, _TABLE, tried)


def _inputs(trial: Trial) -> tuple[bool, Shares, str]:
    """Saved linear inputs halve; most of what is saved is something else."""
    run = trial.facts.run
    wide, narrow = (
        _estimate(trial, one).memory_bytes.get("activations", 0.0)
        for one in (run.replaced(precision=WIDE), _fp8_run(run))
    )
    share = narrow / wide if wide else 1.0
    told = f"saved activations of the fastest mapping: {wide / 1e9:,.4g} GB in BF16, {narrow / 1e9:,.4g} GB in FP8"
    return 0.5 < share < 1.0, (None, share), told


def _copies(trial: Trial) -> tuple[bool, Shares, str]:
    """Without FP8 primary weights, FP8 adds copies of them."""
    run = trial.facts.run
    wide, copied, primary = (
        _estimate(trial, one).memory_bytes["weights"]
        for one in (
            run.replaced(precision=WIDE),
            _fp8_run(run, fp8_primary_weights=False),
            _fp8_run(run, fp8_primary_weights=True),
        )
    )
    told = (
        f"weights of the fastest mapping: {wide / 1e9:,.4g} GB in BF16, {copied / 1e9:,.4g} GB with FP8 copies beside "
        f"them, {primary / 1e9:,.4g} GB with FP8 primary weights"
    )
    return copied > wide >= primary, (None, copied / wide), told


def _dispatch(trial: Trial) -> tuple[bool, Shares, str]:
    """Dispatch in FP8 with its scales, combine in BF16: three quarters of the bytes."""
    run = trial.facts.run
    shares = []
    for one in (run.replaced(precision=WIDE), _fp8_run(run)):
        shares.append(float(dispatch_element_bytes(run=one)) + one.routing.combine_bytes)
    found, expected = shares[1] / shares[0], 0.75
    seconds = [_estimate(trial, one).communication_s["ep"] for one in (run.replaced(precision=WIDE), _fp8_run(run))]
    told = f"dispatch and combine carry {shares[0]:.4g} bytes per element in BF16 and {shares[1]:.4g} with FP8 dispatch"
    if seconds[0]:
        told += f"; those of the fastest mapping take {seconds[0]:,.4g} s a step and {seconds[1]:,.4g} s"
    return abs(found - expected) <= NEAR, (expected, found), told


def _gathers(trial: Trial) -> tuple[bool, Shares, str]:
    """Parameters are gathered in FP8 where they are kept so, but not in MXFP8."""
    run = trial.facts.run
    wide, narrow = (
        float(gathered_weight_bytes(run=one))
        for one in (run.replaced(precision=WIDE), _fp8_run(run, fp8_primary_weights=True))
    )
    expected = 1.0 if _fp8_run(run).precision == "mxfp8" else 0.5
    found = narrow / wide
    told = f"a parameter is gathered with {wide:.4g} bytes in BF16 and {narrow:.4g} with FP8 primary weights"
    return abs(found - expected) <= NEAR, (expected, found), told


def _faster(trial: Trial, rule: Rule) -> Guideline:
    """Both formats searched: GEMMs at the FP8 peak, more bytes of weights, less of everything that is quantised."""
    why = _able(trial)
    if why:
        return inapplicable(rule, why)
    narrow = trial.under(precision=_fp8_run(trial.facts.run).precision)
    wide = trial.under(precision=WIDE)
    words = f"{narrow.facts.run.precision}", WIDE
    return judged(narrow, rule, narrow.fastest(), wide.fastest(), words=words, other=wide)


FP8 = (
    _wall("FP8 inputs", "FP8 halves saved linear inputs only, not all activations", _inputs),
    _wall("FP8 copies", "without FP8 primary weights, FP8 adds copies of the weights", _copies),
    _wall("FP8 dispatch", "FP8 dispatch and BF16 combine send three quarters of the bytes", _dispatch),
    _wall("FP8 gathers", "FP8 primary weights halve parameter gathers, except in MXFP8", _gathers),
    Rule("FP8 compute", "train in FP8 for its faster GEMMs", _TABLE, _faster),
)
