"""Figures of merit: error summaries, Kendall's tau, regret, and the constant guess."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from mapsearch.calibration.predict import Prediction
from mapsearch.calibration.rows import Case
from mapsearch.inventories.profile import Profile

ALTERNATIVES = 5
"""Least number of rows in a study whose order counts."""


@dataclass(frozen=True)
class Scored:
    """One row and what was predicted for it."""

    case: Case
    profile: Profile
    prediction: Prediction
    flops: float
    """Causal model FLOP of one step."""
    memory_error: float | None
    fits: bool | None
    """Whether the model says that the row fits, at the run's reserve; None where memory is not known."""

    @property
    def time_error(self) -> float | None:
        """Predicted over measured step time, less 1."""
        measured = self.case.measured.step_time_s
        return None if measured is None else self.prediction.step_time_s / measured - 1.0

    @property
    def oom_right(self) -> bool | None:
        """Whether the verdict on memory is the machine's."""
        return None if self.fits is None else self.fits != self.case.measured.oom


def summary(errors: Sequence[float]) -> dict[str, Any]:
    """n, median, mean, p90 and max of absolute errors, and bias, the median of signed ones."""
    if not errors:
        return {"n": 0, "median": None, "mean": None, "p90": None, "max": None, "bias": None}
    size = np.abs(errors)
    return {
        "n": len(errors),
        "median": float(np.median(size)),
        "mean": float(np.mean(size)),
        "p90": float(np.quantile(size, 0.9)),
        "max": float(np.max(size)),
        "bias": float(np.median(errors)),
    }


def memory_summary(group: Sequence[Scored]) -> dict[str, Any]:
    """Errors of peak memory."""
    return summary([one.memory_error for one in group if one.memory_error is not None])


def names_of(case: Case) -> list[str]:
    """The groups that a case is counted in."""
    told = case.groups
    found = ["all", *(["megatron_nvidia"] if told.megatron_nvidia else []), told.arch, told.device, told.source]
    return [*found, f"precision {told.precision}", f"devices {told.scale}", f"framework {told.family}"]


ORDER = ("all", "megatron_nvidia", "moe", "dense")


def groups_of(scored: Sequence[Scored]) -> dict[str, list[Scored]]:
    """Scored rows by group; the named ones always exist and come first."""
    groups: dict[str, list[Scored]] = {name: [] for name in ORDER}
    rest: dict[str, list[Scored]] = defaultdict(list)
    for one in scored:
        for name in names_of(one.case):
            (groups if name in ORDER else rest)[name].append(one)
    kinds = ("devices", "framework", "precision")
    ordered = sorted(rest, key=lambda name: (name.split()[0] in kinds, name))
    return groups | {name: rest[name] for name in ordered}


def naive_summary(scored: Sequence[Scored]) -> dict[str, dict[str, Any]]:
    """Errors of a constant guess: the median model FLOP/s per device of all other rows of device and precision."""
    rates: dict[tuple[str, str], list[tuple[Scored, float]]] = defaultdict(list)
    for one in scored:
        if one.case.measured.step_time_s is not None:
            rate = one.flops / (one.case.measured.step_time_s * one.case.devices)
            rates[one.case.groups.device, one.case.groups.precision].append((one, rate))
    errors: dict[str, list[float]] = defaultdict(list)
    for members in rates.values():
        for index, (one, rate) in enumerate(members):
            others = [other for place, (_, other) in enumerate(members) if place != index]
            if not others:
                continue
            error = rate / float(np.median(others)) - 1.0
            for name in names_of(one.case):
                errors[name].append(error)
    names = [*ORDER, *sorted(set(errors) - set(ORDER))]
    return {name: summary(errors.get(name, [])) for name in names}


def kendall(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Kendall's tau-b: pairs in the same order less pairs in the other, ties taken out of the scale."""
    same = other = ties_first = ties_second = 0
    for i, j in combinations(range(len(first)), 2):
        a, b = np.sign(first[i] - first[j]), np.sign(second[i] - second[j])
        same += int(a * b > 0)
        other += int(a * b < 0)
        ties_first += int(a == 0 and b != 0)
        ties_second += int(b == 0 and a != 0)
    scale = ((same + other + ties_first) * (same + other + ties_second)) ** 0.5
    return (same - other) / scale if scale else None


def ordering(scored: Sequence[Scored]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Kendall's tau and regret inside studies; alternatives are compared by seconds per token."""
    studies: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in scored:
        if one.case.measured.step_time_s is not None:
            tokens = one.case.run.tokens_per_step
            pair = (one.prediction.step_time_s / tokens, one.case.measured.step_time_s / tokens)
            studies[one.case.groups.study].append(pair)
    taus, regrets, by_study = [], [], {}
    for name, pairs in sorted(studies.items()):
        if len(pairs) < ALTERNATIVES:
            continue
        predicted, measured = [p for p, _ in pairs], [m for _, m in pairs]
        tau = kendall(predicted, measured)
        regret = measured[int(np.argmin(predicted))] / min(measured) - 1.0
        regrets.append(regret)
        if tau is not None:
            taus.append(tau)
        by_study[name] = {"n": len(pairs), "tau": tau, "regret": regret}
    median = float(np.median(taus)) if taus else None
    return (
        {"n": len(taus), "median": median, "studies": by_study},
        {
            "n": len(regrets),
            "median": float(np.median(regrets)) if regrets else None,
            "p90": float(np.quantile(regrets, 0.9)) if regrets else None,
        },
    )
