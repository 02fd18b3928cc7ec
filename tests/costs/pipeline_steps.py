"""A pipeline stepped through operation by operation: the oracle for the closed forms of costs/pipeline.py.

Contents: Operation, gpipe, one_f_one_b, interleaved, zb_h1, zb_h2, step_through.
"""

from collections import Counter
from typing import NamedTuple


class Operation(NamedTuple):
    """F, B (input gradients) or W (weight gradients) of one microbatch in one chunk of a device."""

    kind: str
    microbatch: int
    chunk: int = 0


def gpipe(p: int, m: int, r: int) -> list[Operation]:
    return [Operation("F", i) for i in range(m)] + [Operation(k, i) for i in range(m) for k in "BW"]


def one_f_one_b(p: int, m: int, r: int) -> list[Operation]:
    warmup = min(p - r - 1, m)
    order = [Operation("F", i) for i in range(warmup)]
    for i in range(m):
        if warmup + i < m:
            order.append(Operation("F", warmup + i))
        order += [Operation("B", i), Operation("W", i)]
    return order


def interleaved(p: int, m: int, r: int, v: int) -> list[Operation]:
    """Megatron's order: groups of p microbatches go through chunk after chunk."""

    def at(k: int, backward: bool) -> Operation:
        chunk, microbatch = k % (p * v) // p, k // (p * v) * p + k % p
        return Operation("B" if backward else "F", microbatch, v - 1 - chunk if backward else chunk)

    total = m * v
    warmup = min(2 * (p - r - 1) + (v - 1) * p, total)
    order = [at(k, False) for k in range(warmup)]
    for k in range(total):
        if warmup + k < total:
            order.append(at(warmup + k, False))
        back = at(k, True)
        order += [back, back._replace(kind="W")]
    return order


def zb_h1(p: int, m: int, r: int) -> list[Operation]:
    """Handcrafted ZB-H1: the order of 1F1B, with each weight gradient r microbatches late."""
    order = [op for op in one_f_one_b(p, m, r) if op.kind != "W"]
    result: list[Operation] = []
    for op in order:
        result.append(op)
        if op.kind == "B" and op.microbatch >= r:
            result.append(Operation("W", op.microbatch - r))
    return result + [Operation("W", i) for i in range(max(0, m - r), m)]


def zb_h2(p: int, m: int, r: int) -> list[Operation]:
    """Handcrafted ZB-H2: twice the warm-up of ZB-H1, and each weight gradient 2r microbatches late."""
    warmup, late = min(2 * (p - r - 1), m), 2 * r
    order = [Operation("F", i) for i in range(warmup)]
    for i in range(m):
        if warmup + i < m:
            order.append(Operation("F", warmup + i))
        order.append(Operation("B", i))
        if i >= late:
            order.append(Operation("W", i - late))
    return order + [Operation("W", i) for i in range(max(0, m - late), m)]


def step_through(
    orders: list[list[Operation]], seconds: list[dict[str, float]], v: int = 1
) -> tuple[float, list[float]]:
    """Run each device's order as early as its inputs allow; `seconds` are of one chunk.

    Returns the time of the last operation's end and, per device, the most microbatches held: a chunk's activations
    live from the start of its F to the end of its W, and count 1/v.
    """
    p = len(orders)
    stages = p * v
    done: dict[tuple[Operation, int], float] = {}
    clock, cursor = [0.0] * p, [0] * p
    held, peak = [Counter() for _ in range(p)], [0.0] * p

    def needs(op: Operation, r: int) -> list[tuple[Operation, int]]:
        stage = op.chunk * p + r
        if op.kind == "W":
            return [(op._replace(kind="B"), r)]
        before = stage - 1 if op.kind == "F" else stage + 1
        if op.kind == "B" and before == stages:
            return [(op._replace(kind="F"), r)]
        if before < 0:
            return []
        return [(Operation(op.kind, op.microbatch, before // p), before % p)]

    while any(cursor[r] < len(orders[r]) for r in range(p)):
        moved = False
        for r in range(p):
            while cursor[r] < len(orders[r]):
                op = orders[r][cursor[r]]
                inputs = needs(op, r)
                if any(key not in done for key in inputs):
                    break
                clock[r] = max([clock[r], *(done[key] for key in inputs)]) + seconds[r][op.kind]
                done[op, r] = clock[r]
                held[r]["now"] += {"F": 1, "B": 0, "W": -1}[op.kind]
                peak[r] = max(peak[r], (held[r]["now"]) / v)
                cursor[r] += 1
                moved = True
        if not moved:
            raise AssertionError("the orders of the devices wait for each other")
    return max(clock), peak
