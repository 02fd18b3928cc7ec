"""A pipeline run event by event: when every operation starts and ends, what waits, and what is held.

Contents: OpTimes, TimedOp, Timeline, simulate.

Pure: the orders of a schedule and the seconds of every chunk in, a timeline out. It knows no formula, so the closed
forms of costs/pipeline.py can be held against it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from mapsearch.simulating.orders import Group, Kind, Op, Place, Plan


class OpTimes(NamedTuple):
    """Seconds of one microbatch in one chunk of a device."""

    forward_s: float
    input_grad_s: float
    weight_grad_s: float

    def of(self, kind: Kind) -> float:
        """Seconds of one operation; a whole backward is both gradients."""
        if kind is Kind.BACKWARD:
            return self.input_grad_s + self.weight_grad_s
        return {Kind.FORWARD: self[0], Kind.INPUT_GRAD: self[1], Kind.WEIGHT_GRAD: self[2]}[kind]

    @property
    def total_s(self) -> float:
        """Forward and backward."""
        return self.forward_s + self.input_grad_s + self.weight_grad_s


class TimedOp(NamedTuple):
    """One operation in its place and time. Unit: s from the first operation's start."""

    device: int
    chunk: int
    microbatch: int
    kind: Kind
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Timeline:
    """Every operation of one step's pipeline, by device and then by time."""

    devices: int
    ops: tuple[TimedOp, ...]
    peaks: tuple[float, ...]
    """The most microbatches whose activations a device holds at once, in microbatches through the whole device.

    A chunk's activations are held from the start of its forward to the end of its weight gradients.
    """

    @cached_property
    def by_device(self) -> tuple[tuple[TimedOp, ...], ...]:
        """The operations of each device, in order."""
        rows: list[list[TimedOp]] = [[] for _ in range(self.devices)]
        for op in self.ops:
            rows[op.device].append(op)
        return tuple(map(tuple, rows))

    @property
    def makespan_s(self) -> float:
        """From the first operation's start to the last one's end."""
        return max(row[-1].end_s for row in self.by_device)

    @property
    def span_s(self) -> float:
        """The longest time from a device's first operation to its last one's end.

        The period of steps that follow each other where no device waits for all others in between, as zero-bubble
        schedules have it by validating the optimizer step afterwards (arXiv 2401.10241, section 4).
        """
        return max(row[-1].end_s - row[0].start_s for row in self.by_device)

    @cached_property
    def busy_s(self) -> tuple[float, ...]:
        """Seconds that each device computes."""
        return tuple(sum(op.end_s - op.start_s for op in row) for row in self.by_device)

    @property
    def idle_s(self) -> tuple[float, ...]:
        """Seconds of the makespan that each device does not compute."""
        return tuple(self.makespan_s - busy for busy in self.busy_s)


def simulate(plan: Plan, seconds: Sequence[Sequence[OpTimes]], *, hop_s: float = 0.0) -> Timeline:
    """Run every device's order as early as its inputs allow.

    `seconds[device][chunk]` are of one microbatch; `hop_s` passes between the end of an operation and the start of one
    that needs its result on another device. Raises ValueError when the devices wait for each other for ever.
    """
    return _Run(plan, seconds, hop_s).finish()


_Key = tuple[bool, int, int, int]
"""A result that others wait for: forward or not, device, chunk, microbatch."""


class _Run:
    """State of one simulation."""

    def __init__(self, plan: Plan, seconds: Sequence[Sequence[OpTimes]], hop_s: float) -> None:
        self.plan, self.seconds, self.hop_s = plan, seconds, hop_s
        self.before: dict[Place, Place] = {}
        self.after: dict[Place, Place] = {}
        for route in plan.routes:
            for earlier, later in pairwise(route):
                self.before[later], self.after[earlier] = earlier, later
        count = len(plan.orders)
        self.clock, self.cursor = [0.0] * count, [0] * count
        self.held, self.peak = [0] * count, [0] * count
        self.done: dict[_Key, float] = {}
        self.waiting: dict[_Key, int] = {}
        self.rows: list[list[TimedOp]] = [[] for _ in range(count)]

    def finish(self) -> Timeline:
        """Let every device run until it waits, and wake it when what it waits for is there."""
        awake = deque(range(len(self.plan.orders)))
        while awake:
            device = awake.popleft()
            for key in self._advance(device):
                if key in self.waiting:
                    awake.append(self.waiting.pop(key))
        stuck = [r for r, order in enumerate(self.plan.orders) if self.cursor[r] < len(order)]
        if stuck:
            raise ValueError(f"the orders of the devices wait for each other (device {stuck[0]} and others)")
        ops = tuple(op for row in self.rows for op in row)
        return Timeline(len(self.rows), ops, tuple(self.plan.unit * peak for peak in self.peak))

    def _advance(self, device: int) -> list[_Key]:
        """Run a device until it waits; the results that it made."""
        order, made = self.plan.orders[device], []
        while self.cursor[device] < len(order):
            group = order[self.cursor[device]]
            needs = [need for op in group if (need := self._need(device, op)) is not None]
            missing = next((key for key in needs if key not in self.done), None)
            if missing is not None:
                self.waiting[missing] = device
                break
            made += self._run(device, group, needs)
            self.cursor[device] += 1
        return made

    def _need(self, device: int, op: Op) -> _Key | None:
        """The result that an operation waits for; none at the start of a route, and for weight gradients."""
        here = device, op.chunk
        if op.kind is Kind.WEIGHT_GRAD:
            return False, *here, op.microbatch
        forward = op.kind is Kind.FORWARD
        there = (self.before if forward else self.after).get(here)
        if there is not None:
            return forward, *there, op.microbatch
        return None if forward else (True, *here, op.microbatch)

    def _run(self, device: int, group: Group, needs: list[_Key]) -> list[_Key]:
        """Place a group after its inputs; the results that it made."""
        ready = (self.done[key] + (self.hop_s if key[1] != device else 0.0) for key in needs)
        now = max(self.clock[device], *ready, 0.0)
        for op in group:
            end = now + self.seconds[device][op.chunk].of(op.kind)
            self.rows[device].append(TimedOp(device, op.chunk, op.microbatch, op.kind, now, end))
            self.held[device] += op.kind is Kind.FORWARD
            self.peak[device] = max(self.peak[device], self.held[device])
            now = end
        self.held[device] -= sum(op.kind in (Kind.BACKWARD, Kind.WEIGHT_GRAD) for op in group)
        self.clock[device] = now
        results = [op for op in group if op.kind is not Kind.WEIGHT_GRAD]
        keys = [(op.kind is Kind.FORWARD, device, op.chunk, op.microbatch) for op in results]
        self.done.update(dict.fromkeys(keys, now))
        return keys
