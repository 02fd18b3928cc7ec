"""Recomputing on the first stages only: what differs between stages that recompute and stages that do not.

Contents: per_stage.

Whatever depends on recompute is summed per kind of stage, and a kind recomputes or does not. So a function of a view is
evaluated with the cell's recompute and with none, and each kind takes its own; no formula knows of the split.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

from mapsearch import arrays as np
from mapsearch.arrays import PLAIN
from mapsearch.axes import Recompute
from mapsearch.costs.step import Side
from mapsearch.costs.views import AttentionView, ExpertView
from mapsearch.quantity import Num

V = TypeVar("V", AttentionView, ExpertView)
T = TypeVar("T")


def per_stage(function: Callable[[V], T]) -> Callable[[V], T]:
    """A function that gives values per kind of stage, where only the first stages may recompute.

    Costs nothing where all stages are alike in that.
    """

    @wraps(function)
    def found(view: V) -> T:
        cell = view.cell
        if not cell.recompute_stages:
            return function(view)
        without = replace(view, cell=replace(cell, recompute=_nothing(cell.recompute)))
        flags = [kind.recomputes for kind in cell.kinds]
        return _picked(function(view), function(without), flags)  # type: ignore[no-any-return]

    return found


def _nothing(recompute: Num) -> Num:
    """No recompute, with as many dimensions as the candidates have."""
    if type(recompute) in PLAIN:
        return int(Recompute.NONE)
    return np.zeros((1,) * np.ndim(recompute), dtype=np.int64)


def _picked(first: Any, second: Any, flags: list[Num]) -> Any:
    """For each kind of stage the first value where it recomputes, else the second."""
    if isinstance(first, Side):
        return _sides(first, second, flags)
    if isinstance(first, dict):
        return {name: _kinds(values, second[name], flags) for name, values in first.items()}
    return _kinds(first, second, flags)


def _kinds(first: list[Num], second: list[Num], flags: list[Num]) -> list[Num]:
    """One value per kind of stage; lists of what cannot be there are empty."""
    if not first:
        return first
    return [_value(*values) for values in zip(first, second, flags, strict=True)]


def _value(first: Num, second: Num, flag: Num) -> Num:
    if type(flag) in PLAIN:
        return first if flag else second
    return np.where(np.asarray(flag) > 0, first, second)


def _sides(first: Side, second: Side, flags: list[Num]) -> Side:
    launches = None
    if first.launches and second.launches:
        ahead, back = (_kinds(a, b, flags) for a, b in zip(first.launches, second.launches, strict=True))
        launches = ahead, back
    rest = [1.0 - flag for flag in flags]
    # How often a transfer is repeated is one value for all kinds, so it is listed for those that recompute and for the
    # others.
    transfers = [(transfer, flags) for transfer in first.transfers] + [(other, rest) for other in second.transfers]
    return Side(
        parts=[
            replace(
                a,
                forward=_kinds(a.forward, b.forward, flags),
                input_grad=_kinds(a.input_grad, b.input_grad, flags),
                weight_grad=_kinds(a.weight_grad, b.weight_grad, flags),
            )
            for a, b in zip(first.parts, second.parts, strict=True)
        ],
        once=_picked(first.once, second.once, flags),
        under_compute=_picked(first.under_compute, second.under_compute, flags),
        under_shared=_kinds(first.under_shared, second.under_shared or [], flags) if first.under_shared else None,
        transfers=[
            replace(transfer, counts=[count * here for count, here in zip(transfer.counts, where, strict=True)])
            for transfer, where in transfers
        ],
        launches=launches,
    )
