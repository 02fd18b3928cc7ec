"""How far a level stands for its graph: one sentence for each way in which its units are not alike.

Contents: NEAR, remarks, hops_across.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from mapsearch.units import RATE, render

if TYPE_CHECKING:
    from mapsearch.topologies.fabric import LevelKind
    from mapsearch.topologies.wiring import Wiring

NEAR = 1.01
"""Rates within this factor count as equal."""


def remarks(
    name: str, kind: LevelKind, wirings: Mapping[int, Wiring], rates: Mapping[int, float], labels: Mapping[int, str]
) -> list[str]:
    """What a level's number leaves out. `rates`: bytes/s per device out of each unit; `labels`: their names."""
    return [
        f"level {name}: {text}"
        for text in (
            *_shapeless(wirings, rates),
            *_uneven_units(rates, labels),
            *_uneven_links(wirings),
            *([f"units differ in kind; taken as {kind}, the commonest"] if len(_kinds(wirings)) > 1 else []),
        )
    ]


def _kinds(wirings: Mapping[int, Wiring]) -> set[LevelKind]:
    return {wiring.kind for wiring in wirings.values()}


def _rate(bytes_per_s: float) -> str:
    return render(float(f"{bytes_per_s:.4g}"), RATE)


def _shapeless(wirings: Mapping[int, Wiring], rates: Mapping[int, float]) -> Iterator[str]:
    """Units in no regular shape: what the number is, and how much more a unit gets when it sends alone."""
    loose = [wiring for wiring in wirings.values() if not wiring.regular]
    if not loose:
        return
    slowest = min(rates.values())
    alone = max(wiring.alone for wiring in loose)
    yield (
        f"units are joined in no regular shape (mesh, ring, torus or switch); taken as a switch at "
        f"{_rate(slowest)} per device, the narrowest cut found, which is what all get when all send to all"
        + (f"; a unit that sends alone gets up to {alone:.3g} times that" if alone > NEAR else "")
        + _apart(max(wiring.hops for wiring in loose))
    )


def _apart(hops: int) -> str:
    return f"; siblings are 1 to {hops} hops apart, so near ones do better and far ones worse" if hops > 1 else ""


def _uneven_units(rates: Mapping[int, float], labels: Mapping[int, str]) -> Iterator[str]:
    slowest, fastest = min(rates.values()), max(rates.values())
    if fastest > slowest * NEAR:
        weak = min(rates, key=lambda child: rates[child])
        fewer = sum(rate * NEAR < fastest for rate in rates.values())
        yield (
            f"bandwidth per device is from {slowest / 1e9:,.4g} to {fastest / 1e9:,.4g} GB/s; the lowest counts "
            f"(at {labels[weak]}; {fewer:,} of {len(rates):,} units are below the fastest)"
        )


def _uneven_links(wirings: Mapping[int, Wiring]) -> Iterator[str]:
    """Direct links of different speed: the level counts them as equal."""
    spreads = [wiring.spread for wiring in wirings.values() if wiring.spread is not None]
    if not spreads:
        return
    low, high = min(low for low, _ in spreads), max(high for _, high in spreads)
    if high > low * NEAR:
        yield (
            f"links between units carry from {low / 1e9:,.4g} to {high / 1e9:,.4g} GB/s; their sum counts, shared "
            "equally, so a group on the weakest links is slower than this and one on the strongest faster"
        )


def hops_across(joined: Mapping[int, set[int]], start: int) -> int:
    """Hops from a unit to the farthest one."""
    distance = {start: 0}
    todo = [start]
    for unit in todo:
        for other in joined[unit]:
            if other not in distance:
                distance[other] = distance[unit] + 1
                todo.append(other)
    return max(distance.values())
