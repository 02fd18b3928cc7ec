"""The views of a pipeline's timeline: one line of blocks per stage, its figures, and what the closed form says.

Contents: simulation_lines, drawing_lines, simulation_page.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import median

from rich.text import Text

from mapsearch.reports import human
from mapsearch.reports.layout import Column, flowed, grid
from mapsearch.reports.page import page
from mapsearch.reports.timeline_svg import timeline_svg
from mapsearch.simulating.orders import Kind
from mapsearch.simulating.simulator import TimedOp, Timeline
from mapsearch.simulation import SimulatedStage, Simulation

_PAGE_WIDTH = 120
_LETTERS = {Kind.FORWARD: "F", Kind.BACKWARD: "B", Kind.INPUT_GRAD: "B", Kind.WEIGHT_GRAD: "W"}
_STYLES = {Kind.FORWARD: "blue", Kind.BACKWARD: "yellow", Kind.INPUT_GRAD: "yellow", Kind.WEIGHT_GRAD: "green"}
_IDLE, _CUT, _MORE = ".", "~", "-"
_SHORT = 0.25
"""Operations below this share of the median are not what a column is made for."""
_ROUNDING = 1e-9
_COARSE = 1.5
"""A column may hold this many of the shortest operation before something is cut out rather."""


def simulation_lines(simulation: Simulation, timeline: Timeline, *, width: int) -> list[Text]:
    """The whole view as styled lines no wider than `width` where that is possible."""
    width = max(width, 40)
    vpp = f" VPP {simulation.vpp}" if simulation.vpp > 1 else ""
    stages = "1 stage" if len(simulation.stages) == 1 else f"{len(simulation.stages)} stages"
    microbatches = "1 microbatch" if simulation.microbatches == 1 else f"{simulation.microbatches:,} microbatches"
    head = f"{simulation.schedule}{vpp}, {microbatches}, {stages}"
    lines = [*flowed(f"{simulation.mapping}: {head}", width=width, style="bold")]
    lines += flowed(f"order of operations: {simulation.order_source}", width=width, style="dim")
    lines += [Text(""), *drawing_lines(timeline, width=width), Text("")]
    lines += _stage_lines(simulation.stages)
    lines += [Text(""), *(line for said in _said(simulation) for line in flowed(said, width=width))]
    return [*lines, *(line for note in simulation.notes for line in flowed(f"Note: {note}", width=width, style="dim"))]


def simulation_page(simulation: Simulation, timeline: Timeline) -> str:
    """The view as one HTML document with the drawing, without scripts or links."""
    return page(simulation_lines(simulation, timeline, width=_PAGE_WIDTH), figure=timeline_svg(timeline))


def drawing_lines(timeline: Timeline, *, width: int) -> list[Text]:
    """One line of blocks per stage, what does not fit cut out of the middle, and how to read them."""
    label = len(f"stage {timeline.devices - 1} ")
    columns = width - label - 2
    scale = _Scale(timeline, columns)
    lines = []
    for device, row in enumerate(timeline.by_device):
        line = Text(f"{f'stage {device}':<{label}}|", style="")
        for text, style in _blocks(row, scale):
            line.append(text, style=style)
        lines.append(line.append("|"))
    return [*lines, *(line for said in _legend(timeline, scale) for line in flowed(said, width=width, style="dim"))]


class _Scale:
    """Seconds to columns: the whole run, or its beginning and end when a column would hold several operations."""

    def __init__(self, timeline: Timeline, columns: int) -> None:
        lengths = [op.end_s - op.start_s for op in timeline.ops if op.end_s > op.start_s] or [1.0]
        typical = median(lengths)
        least = min(length for length in lengths if length >= _SHORT * typical)
        total = timeline.makespan_s or 1.0
        self.cut = total / (_COARSE * least) > columns
        self.column_s = least if self.cut else total / columns
        whole = round(total / self.column_s)
        self.head = (columns - 1) // 2 if self.cut else columns
        tail = columns - 1 - self.head if self.cut else 0
        self.resume = whole - tail
        self.columns = columns

    @property
    def left_out_s(self) -> float:
        """Seconds between beginning and end that are not drawn."""
        return (self.resume - self.head) * self.column_s if self.cut else 0.0

    def spans(self, op: TimedOp) -> list[tuple[int, int]]:
        """Columns of an operation, from and to; none where it is cut out."""
        first = round(op.start_s / self.column_s)
        last = max(first + 1, round(op.end_s / self.column_s)) if op.end_s > op.start_s else first
        here = [(first, min(last, self.head))]
        if self.cut:
            shift = self.columns - (self.columns - 1 - self.head) - self.resume
            here.append((max(first, self.resume) + shift, last + shift))
        return [(start, end) for start, end in here if start < min(end, self.columns)]


def _blocks(row: Sequence[TimedOp], scale: _Scale) -> list[tuple[str, str]]:
    """Runs of columns of one stage with their style."""
    cells = [(_IDLE, "dim")] * scale.columns
    free = 0
    for op in row:
        letter = _LETTERS[op.kind] if op.chunk == 0 else _LETTERS[op.kind].lower()
        for first, end in scale.spans(op):
            written, start = f"{letter}{op.microbatch}", max(first, free)
            length = min(end, scale.columns) - start
            free = max(free, end)
            if length < 1:
                continue
            # A number that does not fit would be another microbatch's.
            written = written if len(written) <= length else letter
            for place, sign in enumerate(f"{written:{_MORE}<{length}}"):
                cells[start + place] = (sign, _STYLES[op.kind])
    if scale.cut:
        cells[scale.head] = (_CUT, "dim")
    return [("".join(sign for sign, _ in run), style) for style, run in groupby(cells, key=lambda cell: cell[1])]


def _legend(timeline: Timeline, scale: _Scale) -> list[str]:
    kinds = {op.kind for op in timeline.ops}
    words = ["F forward"]
    if Kind.INPUT_GRAD in kinds:
        words += ["B backward (of inputs alone where a W follows)", "W weight gradients"]
    else:
        words += ["B backward"]
    words += ["number: microbatch", f"{_IDLE} waits"]
    if any(op.chunk for op in timeline.ops):
        words.append("lower case: second chunk and later")
    said = [f"{', '.join(words)}; a column is {human.seconds(scale.column_s)}"]
    if scale.cut:
        said.append(f"cut at {_CUT}: {human.seconds(scale.left_out_s)} in the middle are not drawn")
    return said


def _stage_lines(stages: Sequence[SimulatedStage]) -> list[Text]:
    """Figures of the stages, consecutive ones that are alike in one row."""
    rows = [list(run) for _, run in groupby(stages, key=lambda one: tuple(_figures(one)))]
    names = [str(run[0].stage) if len(run) == 1 else f"{run[0].stage}-{run[-1].stage}" for run in rows]
    titles = ("F", "B in", "W", "busy", "waits", "holds", "charged")
    figures = zip(*(_figures(run[0]) for run in rows), strict=True)
    columns = [Column(title, list(values)) for title, values in zip(titles, figures, strict=True)]
    return grid([Column("stage", names), *columns])


def _figures(one: SimulatedStage) -> list[str]:
    times = (one.forward_s, one.input_grad_s, one.weight_grad_s, one.busy_s)
    waits = one.idle_s / (one.busy_s + one.idle_s) if one.busy_s + one.idle_s else 0.0
    held = (one.peak_microbatches, one.closed_form_microbatches)
    return [*map(human.seconds, times), human.percent(waits), *(f"{value:.4g}" for value in held)]


def _said(simulation: Simulation) -> list[str]:
    """What the run takes beside the closed form and the estimate."""
    run, closed = simulation.simulated_s, simulation.closed_form_s
    whole = "from first to last operation"
    if run == simulation.makespan_s:
        said = [f"Simulated: {human.seconds(run, 4)} {whole}."]
    else:
        said = [f"Simulated: {human.seconds(run, 4)} on the longest device, {_long(simulation.makespan_s)} {whole}."]
    if len(simulation.stages) > 1:
        said[0] += f" No order of these operations ends before {_long(simulation.least_s)}."
    said.append(f"Closed form on the same times: {_long(closed)}, {_apart(run, closed)}; {simulation.gap}.")
    estimate = simulation.estimate_s
    if estimate is None or simulation.step_time_s is None:
        return said
    bubble = simulation.estimate_bubble_s or 0.0
    parts = f"rounds {_long(estimate - bubble)}, bubble {human.seconds(_told(bubble, estimate))}"
    step = f"Estimated step: {_long(simulation.step_time_s)}, of which the pipeline {_long(estimate)} ({parts})"
    said.append(f"{step}: {_apart(run, estimate)}.")
    if hidden := _told(estimate - closed, estimate):
        said[-1] += f" The ramps pay {human.seconds(hidden)} of it for what hides in the steady phase only."
    return said


def _long(value_s: float) -> str:
    return human.seconds(value_s, 4)


def _told(part_s: float, whole_s: float) -> float:
    """A part of a time, 0 where it is what rounding leaves."""
    return part_s if abs(part_s) > _ROUNDING * abs(whole_s) else 0.0


def _apart(run: float, other: float) -> str:
    """How far the run is from another time of the same."""
    apart = _told(run - other, other)
    if not apart:
        return "the same as the run"
    share = human.percent(abs(apart / other)) if other else "all"
    return f"the run takes {human.seconds(abs(apart))} ({share}) {'more' if apart > 0.0 else 'less'}"
