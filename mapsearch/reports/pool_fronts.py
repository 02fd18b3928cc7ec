"""The front of two pools as a table: versions against throughput or cost, and what binds at every point.

Contents: pool_front_lines, told_value, value_name, value_of.
"""

from __future__ import annotations

import math

from rich.text import Text

from mapsearch.pooled_front import PoolFront, PoolPoint
from mapsearch.reports.human import count, percent, scaled, seconds
from mapsearch.reports.infeasible import conflict_lines
from mapsearch.reports.layout import Column, flowed, grid
from mapsearch.reports.pools import price, serving_text
from mapsearch.reports.tables import placement_text, sizes_text

BINDS = {
    "train": "training",
    "supply": "supply",
    "publish": "publishing",
    "queue": "queue",
    "version": "one version per request",
}
_NOTHING = {"infeasible": "nothing fits", "unknown": "nothing found yet"}


def value_name(front: PoolFront) -> str:
    """What the points are compared by."""
    names = {"tokens": "RL tokens/s", "cost": "price per M tokens", "device-hours": "device-hours per M tokens"}
    return names[front.objective]


def value_of(front: PoolFront, point: PoolPoint) -> float:
    """The value of a point that holds a pair: tokens per second, or price or device-hours per million tokens."""
    if point.steady is None or point.cost is None:
        raise ValueError("a point without a pair has no value")
    if front.objective == "tokens":
        return point.steady.tokens_per_s
    paid = point.cost.per_million if front.objective == "cost" else point.cost.device_hours_per_million
    return math.nan if paid is None else paid


def told_value(front: PoolFront, point: PoolPoint) -> str:
    """The same as people read it."""
    if point.steady is None:
        return "-"
    value = value_of(front, point)
    return scaled(value, "") if front.objective == "tokens" else price(value)


def pool_front_lines(front: PoolFront, *, width: int, verbose: bool = False) -> list[Text]:
    """The front as lines."""
    lines = flowed(f"{front.status.upper()}: {_verdict(front)} in {seconds(front.seconds)}", width=width, style="bold")
    names = f"{front.model} · {front.run} · {front.topology} · rollout {front.rollout}"
    lines += flowed(names, width=width)
    if any(point.steady for point in front.points):
        lines += [Text(""), *_table(front, width, verbose)]
    lines += conflict_lines(front, width, verbose)
    return [*lines, *(line for note in front.notes for line in flowed(f"Note: {note}", width=width, style="dim"))]


def _verdict(front: PoolFront) -> str:
    points = [point for point in front.points if point.gains]
    if not points:
        return {"infeasible": "under no number of versions a pair of mappings fits"}.get(front.status, "nothing found")
    queues = len({point.held_batches for point in front.points})
    what = f"{count(len(points))} {'point' if len(points) == 1 else 'points'} on the front of versions and "
    what += value_name(front) + (f" for {queues} queues" if queues > 1 else "")
    space = f"{count(front.mappings)} training mappings, {count(front.offers)} ways to serve, {front.searches} searches"
    return f"{what}, {'each proven' if front.status == 'exact' else 'not all proven'}: {space}"


def _table(front: PoolFront, width: int, verbose: bool) -> list[Text]:
    points = front.points
    queues = len({point.held_batches for point in points}) > 1
    columns = [Column("queue", [f"{point.held_batches:g}" for point in points])] if queues else []
    columns += [
        Column("versions", [str(point.versions) for point in points]),
        Column(value_name(front), [told_value(front, point) for point in points], style="bold"),
        Column("step", ["-" if point.steady is None else seconds(point.steady.step_s) for point in points]),
        Column("train", [f"{point.training_devices:,}" for point in points]),
        Column("roll out", [f"{point.rollout_devices:,}" for point in points]),
    ]
    if any(point.idle_devices for point in points if point.steady):
        columns.append(Column("unused", [f"{point.idle_devices:,}" if point.steady else "" for point in points]))
    columns += [
        Column("duty", ["" if point.steady is None else percent(point.steady.duty) for point in points]),
        Column("oldest", ["" if point.steady is None else seconds(point.steady.age_s) for point in points]),
        Column("binds", ["" if point.steady is None else BINDS[point.steady.binding] for point in points], left=True),
        Column("", [_mark(point) for point in points], left=True),
    ]
    head, *rows = grid(columns)
    lines = [head]
    for row, point in zip(rows, points, strict=True):
        lines += [row, *(_details(point, width, verbose) if point.gains else [])]
    return lines


def _mark(point: PoolPoint) -> str:
    if point.steady is None:
        return _NOTHING.get(point.status, "")
    # Rounded up, so that a gap that is left is never told as none.
    opened = f"at most {math.ceil((point.gap or 0.0) * 1e3) / 10:.1f} % from the best" if point.status == "open" else ""
    return ", ".join(word for word in ("knee" if point.knee else "", "" if point.gains else "no gain", opened) if word)


def _details(point: PoolPoint, width: int, verbose: bool) -> list[Text]:
    if point.mapping is None or point.serving is None:
        return []
    told = flowed(f"{sizes_text(point.mapping)}; {serving_text(point.serving)}", indent=4, width=width, style="dim")
    if verbose:
        told += flowed(placement_text(point.mapping), indent=4, width=width, style="dim")
    return told
