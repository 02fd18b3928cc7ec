"""A discrete-event check of routed bandwidths: messages share links fairly while they last.

Contents: simulated_s, walked, MOST_DEVICES, MOST_MESSAGES.

Written apart from the routing it checks: paths are found target by target over whole networks, without blocks, and time
is the end of the last message rather than the load of a link.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mapsearch.errors import InputError
from mapsearch.topologies.routing import Pairs, Router
from mapsearch.topologies.wires import Floats, Ints

MOST_DEVICES = 256
"""Devices up to which the check is made."""
MOST_MESSAGES = 20_000
SAME_END = 1e-6
"""Messages that end within this share of the time to the next end, end together."""


def simulated_s(router: Router, messages: Pairs, *, together: bool = False) -> float:
    """Seconds until all messages are through; each starts at once and gets its max-min fair share of the links.

    `together`: messages get shares in the ratio of their bytes, as the steps of a pipelined ring do. Raises InputError
    beyond MOST_MESSAGES.
    """
    if len(messages.source) > MOST_MESSAGES:
        raise InputError(f"{len(messages.source):,} messages are too many to simulate (limit {MOST_MESSAGES:,})")
    owner, link, part = walked(router, messages)
    left = messages.sent_bytes.astype(np.float64)
    weight = left.copy() if together else np.ones(len(left))
    busy, now = left > 0.0, 0.0
    while busy.any():
        rate = _fair_rates(owner, link, part, weight, busy, router.wires.bytes_per_s)
        ends = left[busy] / rate[busy]
        step = float(ends.min()) * (1.0 + SAME_END)
        now += step
        left = np.where(busy, left - rate * step, left)
        busy &= left > SAME_END * messages.sent_bytes
    return now


def _fair_rates(
    owner: Ints, link: Ints, part: Floats, weight: Floats, busy: NDArray[np.bool_], capacity: Floats
) -> Floats:
    """Max-min fair rates of busy messages, bytes/s, in the ratio of their weights as far as links allow."""
    rate = np.zeros(len(weight))
    rising, room = busy.copy(), capacity.astype(np.float64)
    while rising.any():
        mine = rising[owner]
        pull = np.bincount(link[mine], weights=(part * weight[owner])[mine], minlength=len(capacity))
        used = pull > 0.0
        growth = float((room[used] / pull[used]).min())
        rate[rising] += growth * weight[rising]
        room -= growth * pull
        full = used & (room <= 1e-9 * capacity)
        stopped = np.zeros(len(weight), dtype=np.bool_)
        stopped[owner[mine & full[link]]] = True
        rising &= ~stopped
    return rate


@dataclass(frozen=True)
class _Legs:
    """Parts of the way of messages, each within one class of networks."""

    number: Ints
    """The message."""
    source: Ints
    target: Ints
    share: Floats
    """Of the message."""

    def chosen(self, which: NDArray[np.bool_] | slice) -> _Legs:
        return _Legs(self.number[which], self.source[which], self.target[which], self.share[which])


def _stacked(several: list[_Legs]) -> _Legs:
    return _Legs(
        np.concatenate([legs.number for legs in several]),
        np.concatenate([legs.source for legs in several]),
        np.concatenate([legs.target for legs in several]),
        np.concatenate([legs.share for legs in several]),
    )


def walked(router: Router, messages: Pairs) -> tuple[Ints, Ints, Floats]:
    """Shares of messages on links: number of the message, number of the link, share."""
    count = len(messages.source)
    found: list[tuple[Ints, Ints, Floats]] = []
    legs = _Legs(np.arange(count), messages.source, messages.target, np.ones(count))
    for level in range(len(router.stages) - 1, -1, -1):
        inner = router.stages[level - 1].island if level else np.arange(len(router.wires.names))
        near = inner[legs.source] == inner[legs.target]
        here, later = _relayed(router, level, legs.chosen(~near))
        found += _walked(router, level, here)
        legs = _stacked([legs.chosen(near), later])
    return (
        np.concatenate([owner for owner, _, _ in found]),
        np.concatenate([link for _, link, _ in found]),
        np.concatenate([share for _, _, share in found]),
    )


def _relayed(router: Router, level: int, legs: _Legs) -> tuple[_Legs, _Legs]:
    """Legs as this class of networks carries them, and those inside islands; one by one, so that each keeps its own."""
    relays = router.relays_at(level) if level else None
    if relays is None:
        return legs, legs.chosen(slice(0, 0))
    here, later = [legs.chosen(slice(0, 0))], [legs.chosen(slice(0, 0))]
    for each in range(len(legs.number)):
        one = legs.chosen(slice(each, each + 1))
        source, target, share, before = relays.relayed(one.source, one.target, one.share)
        here.append(_Legs(np.repeat(one.number, len(source)), source, target, share))
        later += [_Legs(np.repeat(one.number, len(a)), a, b, part) for a, b, part in before]
    return _stacked(here), _stacked(later)


def _walked(router: Router, level: int, legs: _Legs) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Walk from every node that holds some of a message to all nodes that are nearer to its target."""
    stage, wires = router.stages[level], router.wires
    links = np.concatenate([stage.links, stage.links ^ 1])
    leaving: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for link, tail, head in zip(links.tolist(), wires.tail[links].tolist(), wires.head[links].tolist(), strict=True):
        leaving[tail].append((link, head))
    for target in np.unique(legs.target).tolist():
        these = legs.chosen(legs.target == target)
        number, source, share = these.number, these.source, these.share
        far = _distances(leaving, target, stage.transit)
        held: dict[int, Floats] = {}
        for place, node in enumerate(source.tolist()):
            held.setdefault(node, np.zeros(len(number)))[place] += share[place]
        for node in sorted(far, key=lambda each: -far[each]):
            if node == target or node not in held:
                continue
            onward = [
                (link, head)
                for link, head in leaving[node]
                if far.get(head, -1) == far[node] - 1 and (head == target or stage.transit[head])
            ]
            cables = sum(int(wires.cables[link]) for link, _ in onward)
            some = np.flatnonzero(held[node])
            for link, head in onward:
                part = held[node] * (int(wires.cables[link]) / cables)
                held[head] = held[head] + part if head in held else part
                yield number[some], np.full(len(some), link), part[some]


def _distances(leaving: dict[int, list[tuple[int, int]]], target: int, transit: NDArray[np.bool_]) -> dict[int, int]:
    far = {target: 0}
    queue = deque([target])
    while queue:
        node = queue.popleft()
        if node != target and not transit[node]:
            continue
        for _, other in leaving[node]:
            if other not in far:
                far[other] = far[node] + 1
                queue.append(other)
    return far
