"""What every device of a pipeline does, in which order, as the published schedules define it (FORMULAS 3.5).

Contents: Kind, Op, Group, Place, Plan, SOURCES, plan_of.

A schedule is a fixed order of operations per device; an operation starts as soon as the one before it has ended and
its inputs have arrived, so the order alone says what waits for what (and how much is held), and times say for how long.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mapsearch.axes import SCHEDULE, Schedule
from mapsearch.errors import InputError


class Kind(enum.Enum):
    """What an operation computes for one microbatch in one chunk of layers."""

    FORWARD = "forward"
    BACKWARD = "backward"
    """Input and weight gradients in one piece: what comes before waits for both."""
    INPUT_GRAD = "input-grad"
    WEIGHT_GRAD = "weight-grad"


class Op(NamedTuple):
    """One operation of a device."""

    kind: Kind
    chunk: int
    microbatch: int


Group = tuple[Op, ...]
"""Operations that run as one: they wait for each other's inputs, and what they compute leaves when all are done."""

Place = tuple[int, int]
"""A device of the pipeline and a chunk on it."""


@dataclass(frozen=True)
class Plan:
    """Orders of all devices, and the ways of the microbatches through them."""

    orders: tuple[tuple[Group, ...], ...]
    routes: tuple[tuple[Place, ...], ...]
    """Each way a microbatch may take, as places in the order of its forward; two for DualPipe."""
    unit: float
    """What one chunk's activations count, in microbatches through the whole device."""


SOURCES: dict[Schedule, str] = {
    Schedule.GPIPE: "arXiv 1811.06965, figure 2",
    Schedule.ONE_F_ONE_B: "arXiv 2104.04473, figure 4 (PipeDream-Flush)",
    Schedule.INTERLEAVED: "arXiv 2104.04473, section 2.2; Megatron-LM core/pipeline_parallel/schedules.py",
    Schedule.ZB_H1: "arXiv 2401.10241, figure 3 (handcrafted ZB-H1)",
    Schedule.ZB_V: "arXiv 2401.10241, section 6; PyTorch distributed/pipelining/schedules.py, ScheduleZBVZeroBubble",
    Schedule.ZB_2P: "arXiv 2401.10241, figure 3 (handcrafted ZB-H2)",
    Schedule.DUALPIPE: "arXiv 2412.19437, figure 5; deepseek-ai/DualPipe dualpipe/dualpipe.py",
    Schedule.DUALPIPE_V: "deepseek-ai/DualPipe dualpipe/dualpipev.py; PyTorch ScheduleDualPipeV",
}
"""Where the order of each schedule is from."""


def plan_of(schedule: int, pp: int, vpp: int, microbatches: int, *, more_warmup: int = 0) -> Plan:
    """The plan of a schedule. One stage runs forward, backward, forward, backward, unless the schedule is GPipe.

    Axes: schedule, pp, vpp (interleaved only), microbatches. `more_warmup`: forwards that 1F1B and interleaved run
    ahead of what they need (1 where expert all-to-alls hide behind another microbatch).
    Raises InputError where the schedule is not defined for so many stages and microbatches. Source: SOURCES.
    """
    p, m, v, code = pp, microbatches, vpp, Schedule(schedule)
    if code == Schedule.GPIPE:
        return Plan((tuple(_single(_gpipe(m))),) * p, (tuple((r, 0) for r in range(p)),), 1.0)
    if p == 1:
        split = code in _SPLIT
        return Plan((_alone(m, split),), (((0, 0),),), 1.0)
    _defined(code, p, v, m)
    forward = tuple((r, 0) for r in range(p))
    if code in (Schedule.ZB_V, Schedule.DUALPIPE_V):
        order = _zb_v if code == Schedule.ZB_V else _dualpipe_v
        routes: tuple[tuple[Place, ...], ...] = (forward + tuple((r, 1) for r in reversed(range(p))),)
        return Plan(tuple(tuple(order(p, m, r)) for r in range(p)), routes, 0.5)
    if code == Schedule.DUALPIPE:
        routes = (forward, tuple((r, 1) for r in reversed(range(p))))
        return Plan(tuple(tuple(_dualpipe(p, m, r)) for r in range(p)), routes, 1.0)
    if code == Schedule.INTERLEAVED and v > 1:
        routes = (tuple((r, c) for c in range(v) for r in range(p)),)
        orders = tuple(tuple(_single(_interleaved(p, v, m, r, more_warmup))) for r in range(p))
        return Plan(orders, routes, 1.0 / v)
    late = {Schedule.ZB_H1: 1, Schedule.ZB_2P: 2}.get(code, 0)
    ordered = ((_zero_bubble(p, m, r, late) if late else _one_f_one_b(m, p - r - 1 + more_warmup)) for r in range(p))
    return Plan(tuple(tuple(_single(one)) for one in ordered), (forward,), 1.0)


_SPLIT = (Schedule.ZB_H1, Schedule.ZB_V, Schedule.ZB_2P)


def _defined(code: Schedule, p: int, v: int, m: int) -> None:
    """Refuse what a schedule is not defined for. Raises InputError."""
    dual = code in (Schedule.DUALPIPE, Schedule.DUALPIPE_V)
    trouble = ""
    if code == Schedule.DUALPIPE and (p % 2 or m % 2):
        trouble = f"takes an even number of stages and of microbatches, not {p} and {m}"
    elif dual and m < 2 * p:
        trouble = f"takes at least 2 PP = {2 * p} microbatches, not {m}"
    elif code == Schedule.INTERLEAVED and v > 1 and m % p and (m < p or 0 < m % p < p):
        trouble = f"takes whole groups of PP = {p} microbatches, not {m}"
    if trouble:
        raise InputError(f"schedule {SCHEDULE.write(code)} {trouble}, so its order is not defined")


def _single(ops: Iterable[Op]) -> Iterator[Group]:
    return ((op,) for op in ops)


def _alone(m: int, split: bool) -> tuple[Group, ...]:
    kinds = (Kind.INPUT_GRAD, Kind.WEIGHT_GRAD) if split else (Kind.BACKWARD,)
    return tuple((Op(kind, 0, i),) for i in range(m) for kind in (Kind.FORWARD, *kinds))


def _gpipe(m: int) -> Iterator[Op]:
    yield from (Op(Kind.FORWARD, 0, i) for i in range(m))
    yield from (Op(Kind.BACKWARD, 0, i) for i in range(m))


def _one_f_one_b(m: int, warmup: int) -> Iterator[Op]:
    ahead = min(warmup, m)
    yield from (Op(Kind.FORWARD, 0, i) for i in range(ahead))
    for i in range(m):
        if ahead + i < m:
            yield Op(Kind.FORWARD, 0, ahead + i)
        yield Op(Kind.BACKWARD, 0, i)


def _interleaved(p: int, v: int, m: int, r: int, more: int) -> Iterator[Op]:
    """Groups of p microbatches go through chunk after chunk, forwards and backwards."""
    table = [(i, c) for first in range(0, m, p) for c in range(v) for i in range(first, min(first + p, m))]
    ahead = min(2 * (p - r - 1) + (v - 1) * p + more, len(table))
    yield from (Op(Kind.FORWARD, c, i) for i, c in table[:ahead])
    for place, (i, c) in enumerate(table):
        if ahead + place < len(table):
            later, chunk = table[ahead + place]
            yield Op(Kind.FORWARD, chunk, later)
        yield Op(Kind.BACKWARD, v - 1 - c, i)


def _zero_bubble(p: int, m: int, r: int, late: int) -> Iterator[Op]:
    """`late` times the warm-up of 1F1B, and each weight gradient `late` times r microbatches after its input gradient.

    1: ZB-H1, 2: ZB-H2.
    """
    ahead, behind = min(late * (p - r - 1), m), late * r
    yield from (Op(Kind.FORWARD, 0, i) for i in range(ahead))
    for i in range(m):
        if ahead + i < m:
            yield Op(Kind.FORWARD, 0, ahead + i)
        yield Op(Kind.INPUT_GRAD, 0, i)
        if i >= behind:
            yield Op(Kind.WEIGHT_GRAD, 0, i - behind)
    yield from (Op(Kind.WEIGHT_GRAD, 0, i) for i in range(max(0, m - behind), m))


class _Writer:
    """An order written by naming what comes next; microbatches are counted per chunk and kind."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.counts: dict[tuple[str, int], int] = {}
        self.owed: list[Op] = []
        """Weight gradients that were put off, first in first out."""

    def _next(self, what: str, chunk: int) -> int:
        count = self.counts.get((what, chunk), 0)
        self.counts[what, chunk] = count + 1
        return count

    def forward(self, chunk: int) -> Op:
        """The next forward of a chunk."""
        return Op(Kind.FORWARD, chunk, self._next("F", chunk))

    def backward(self, chunk: int, *, split: bool = False) -> Op:
        """The next backward of a chunk; split: its weight gradient is owed."""
        i = self._next("B", chunk)
        if not split:
            return Op(Kind.BACKWARD, chunk, i)
        self.owed.append(Op(Kind.WEIGHT_GRAD, chunk, i))
        return Op(Kind.INPUT_GRAD, chunk, i)

    def add(self, *ops: Op) -> None:
        """These as one operation."""
        self.groups.append(ops)

    def pay(self) -> None:
        """The weight gradient that is owed longest, if there is one."""
        if self.owed:
            self.groups.append((self.owed.pop(0),))


def _zb_v(p: int, m: int, r: int) -> list[Group]:
    """ZB-V for m microbatches: written for at least 2p-1, and the microbatches that there are not left out."""
    enough, write = max(2 * p - 1, m), _Writer()

    def forward(chunk: int) -> None:
        write.add(write.forward(chunk))

    def backward(chunk: int, *, pay: bool = True) -> None:
        op = write.backward(chunk, split=True)
        write.add(op)
        if pay:
            write.owed.remove(Op(Kind.WEIGHT_GRAD, op.chunk, op.microbatch))
            write.add(Op(Kind.WEIGHT_GRAD, op.chunk, op.microbatch))

    for _ in range(2 * (p - r) - 1):
        forward(0)
    for _ in range(r):
        forward(1)
        forward(0)
    for _ in range(p - r):
        forward(1)
        backward(1)
    while write.counts["F", 1] < write.counts["F", 0] or write.counts["F", 0] < enough:
        if write.counts["F", 0] < enough:
            forward(0)
        backward(0)
        forward(1)
        backward(1)
    for _ in range(r):
        backward(0, pay=False)
        backward(1, pay=False)
    for _ in range(p - r):
        backward(0, pay=False)
        _pay_first(write, 0)
    for chunk in (1, 0):
        while any(op.chunk == chunk for op in write.owed):
            _pay_first(write, chunk)
    return [group for group in write.groups if group[0].microbatch < m]


def _pay_first(write: _Writer, chunk: int) -> None:
    owed = next(op for op in write.owed if op.chunk == chunk)
    write.owed.remove(owed)
    write.add(owed)


def _dualpipe(p: int, m: int, r: int) -> list[Group]:
    """DualPipe: two pipelines in opposite directions over the same devices, m/2 microbatches each.

    Chunk 0 goes from device 0 to p-1, chunk 1 the other way; the second half of the devices mirrors the first.
    """
    half = min(r, p - 1 - r)
    near = 0 if r < p // 2 else 1
    return _dual(p // 2, m // 2 - p + half + 1, half, (near, 1 - near))


def _dualpipe_v(p: int, m: int, r: int) -> list[Group]:
    """DualPipeV: the devices of one half of DualPipe, each chunk 1 continuing the pipeline of chunk 0 backwards."""
    return _dual(p, m - 2 * p + r + 1, r, (0, 1))


def _dual(p: int, rounds: int, r: int, chunks: tuple[int, int]) -> list[Group]:
    """The eight steps of DualPipe on one device, r places from the end of a half of p devices."""
    write, (a, b) = _Writer(), chunks
    for _ in range(2 * (p - r - 1)):
        write.add(write.forward(a))
    for _ in range(r + 1):
        write.add(write.forward(a))
        write.add(write.forward(b))
    for _ in range(p - r - 1):
        write.add(write.backward(b, split=True))
        write.pay()
        write.add(write.forward(b))
    for i in range(rounds):
        if i == 0 and r == p - 1:
            # The middle devices do not join these two, which shortens the bubble.
            write.add(write.forward(a))
            write.add(write.backward(b))
        else:
            write.add(write.forward(a), write.backward(b))
        write.add(write.forward(b), write.backward(a))
    for _ in range(p - r - 1):
        write.add(write.backward(b))
        write.add(write.forward(b), write.backward(a))
    split = False
    for i in range(r + 1):
        split = split or (i == (r + 1) // 2 and r % 2 == 1)
        write.add(write.backward(b, split=split))
        split = split or (i == (r + 1) // 2 and r % 2 == 0)
        write.add(write.backward(a, split=split))
    for _ in range(p - r - 1):
        write.pay()
        write.add(write.backward(a, split=True))
    for _ in range(r + 1):
        write.pay()
    return write.groups
