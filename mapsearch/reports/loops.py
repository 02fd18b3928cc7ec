"""The views of a loop: verdict, constraints, formula beside simulation, policies; queue and staleness as charts.

Contents: loop_lines, loop_sentences, agreement_rows, constraint_rows, policy_rows, loop_markdown, loop_charts,
loop_page, loop_svg.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby

from rich.text import Text

from mapsearch.loop import Agreement, LoopReport
from mapsearch.reports import human
from mapsearch.reports.exports.charts import Chart, Line, charts_svg
from mapsearch.reports.flat import markdown_table
from mapsearch.reports.layout import Column, flowed, grid, grid_width, section
from mapsearch.reports.page import page
from mapsearch.reports.tables import assumptions_text

_PAGE_WIDTH = 120
_SAWTEETH = 60
"""More steps than this are no teeth to see: the queue's highest and lowest levels are drawn."""
_BOUNDS = {
    "training": "training sets the step",
    "rollout": "the supply of tokens sets the step",
    "staleness": "pacing by the staleness budget sets the step",
    "publishing": "publishing every version sets the step",
}
_GROWS = {
    "samples": "the queue of samples before training grows by {rate} tokens/s",
    "versions": "the queue of versions before publishing grows by {rate} versions/s",
    "starved": "no sample is ever young enough to be used",
}
_NAMES = {
    "step_s": "step", "wait_s": "wait", "duty": "duty", "consumed_tokens_per_s": "consumed",
    "effective_tokens_per_s": "effective", "rollout_use": "rollout in use", "dropped_share": "thrown away",
    "queue_mean_tokens": "queue", "queue_delay_s": "time in queue", "age_mean_s": "age at use",
    "lag_mean": "versions behind",
}  # fmt: skip


def loop_lines(found: LoopReport, *, width: int, verbose: bool = False, footer: bool = True) -> list[Text]:
    """The whole view as styled lines no wider than `width` where that is possible."""
    width = max(width, 40)
    word = "UNSTABLE" if found.steady.grows else "STABLE"
    head = flowed(f"{word}: {_verdict(found)}", width=width)
    head[0].stylize("bold red" if found.steady.grows else "bold green", 0, len(word))
    batch = f"batch {human.count(found.batch_tokens)} tokens"
    about = f"{found.name} · {batch} · training {human.seconds(found.train_s, 4)} · publishing "
    lines = [
        *head,
        *flowed(f"{about}{human.seconds(found.publish_s, 4)} · policy {found.policy}", width=width, style="dim"),
    ]
    lines += section("Constraints", _constraints(found, width), width=width)
    lines += section("Steady state", _agreement(found), width=width)
    lines += section("What the policies cost", _policies(found, width), width=width)
    if not footer:
        return lines
    said = [*_said(found), *(f"Note: {note}" for note in found.notes)]
    if found.assumptions:
        said.append(f"Rests on {assumptions_text(found.assumptions, verbose)}")
    return [*lines, Text(""), *(line for text in said for line in flowed(text, width=width, style="dim"))]


def _verdict(found: LoopReport) -> str:
    state = found.steady
    if state.grows:
        return _GROWS[state.grows].format(rate=human.scaled(state.growth_per_s, "").strip())
    step, wait = human.seconds(state.step_s or 0.0, 4), state.wait_s or 0.0
    waits = f", of which {human.seconds(wait, 4)} waiting" if wait > 0.0 else ""
    rate = human.count(state.consumed_tokens_per_s)
    return f"{_BOUNDS[state.bound]}: {step}{waits}, duty {human.percent(state.duty)}, {rate} tokens/s"


def _said(found: LoopReport) -> list[str]:
    end = found.steps[-1].taken_s if found.steps else 0.0
    said = [f"Simulated: {len(found.steps):,} steps, {human.seconds(end)}, seed {found.seed}; second half counted."]
    if found.simulated_grows:
        said[0] += f" There {_GROWS[found.simulated_grows].partition(' by {')[0]}."
    if found.settled_s is not None:
        said.append(
            f"Settled after {human.seconds(found.settled_s)}: from there on ten steps stay within 5 % of the mean."
        )
    return said


def _constraints(found: LoopReport, width: int) -> list[Text]:
    rows = found.constraints
    told = {True: "holds", False: "broken", None: "-"}
    columns = [
        Column("", [row.name for row in rows], left=True, style="cyan"),
        Column("", [told[row.holds] for row in rows], left=True),
        Column("demand", [_value(row.demand, row.unit) for row in rows]),
        Column("limit", [_value(row.limit, row.unit) for row in rows]),
        Column("why", [row.reason for row in rows], left=True, style="dim"),
    ]
    shown = columns if grid_width(columns) + 2 <= width else columns[:-1]
    return grid(shown, indent=2)


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit in ("tokens", "tokens/s"):
        return f"{human.scaled(value, '').strip()} {unit}"
    return f"{value:.2f}" if unit == "versions" else human.measured(value, unit)


def _agreement(found: LoopReport) -> list[Text]:
    rows: list[Agreement] = found.agreement
    if not rows:
        return []
    return grid(
        [
            Column("", [_NAMES[row.quantity] for row in rows], left=True, style="cyan"),
            Column("formula", [_value(row.formula, row.unit) for row in rows]),
            Column("simulated", [_value(row.simulated, row.unit) for row in rows]),
            Column("apart", ["" if row.apart is None else f"{100.0 * row.apart:+.1f} %" for row in rows]),
        ],
        indent=2,
    )


def _policies(found: LoopReport, width: int) -> list[Text]:
    rows = found.policies
    if not rows:
        return []
    rate = partial(_value, unit="tokens/s")
    columns = [
        Column("", [row.policy for row in rows], left=True, style="cyan"),
        Column("step", ["-" if row.step_s is None else human.seconds(row.step_s) for row in rows]),
        Column(
            "effective",
            ["" if row.effective_tokens_per_s is None else rate(row.effective_tokens_per_s) for row in rows],
        ),
        Column("cost", ["" if row.cost is None else human.percent(row.cost) for row in rows]),
        Column("rollout in use", [human.percent(row.rollout_use) for row in rows]),
        Column("thrown away", [human.percent(row.dropped_share) for row in rows]),
        Column("used over age", [human.percent(row.over_share) for row in rows]),
        Column("versions behind", [f"{row.lag_mean:.2f}, at most {row.lag_most}" for row in rows]),
        Column("grows", [row.grows for row in rows], left=True),
    ]
    while grid_width(columns) + 2 > width and len(columns) > 4:
        del columns[4]
    return grid(columns, indent=2)


AGREEMENT = "Formula and simulation"


def loop_sentences(found: LoopReport) -> list[str]:
    """Verdict and remarks, one sentence each."""
    word = "Unstable" if found.steady.grows else "Stable"
    return [f"{word}: {_verdict(found)}.", *_said(found), *found.notes]


def agreement_rows(found: LoopReport) -> tuple[tuple[str, ...], ...]:
    """Each quantity by formula and by simulation, and how far they are apart."""
    return tuple(
        (_NAMES[row.quantity], _value(row.formula, row.unit), _value(row.simulated, row.unit),
         "" if row.apart is None else f"{100.0 * row.apart:+.1f} %")
        for row in found.agreement
    )  # fmt: skip


def constraint_rows(found: LoopReport) -> tuple[tuple[str, ...], ...]:
    """Each constraint with its verdict, demand, limit and reason."""
    told = {True: "holds", False: "broken", None: ""}
    return tuple(
        (row.name, told[row.holds], _value(row.demand, row.unit), _value(row.limit, row.unit), row.reason)
        for row in found.constraints
    )


def policy_rows(found: LoopReport) -> tuple[tuple[str, ...], ...]:
    """The loop under each policy."""
    rate = partial(_value, unit="tokens/s")
    return tuple(
        (row.policy, "" if row.step_s is None else human.seconds(row.step_s),
         "" if row.wait_s is None else human.seconds(row.wait_s), rate(row.effective_tokens_per_s),
         "" if row.cost is None else human.percent(row.cost), human.percent(row.dropped_share),
         f"{row.lag_mean:.2f}, at most {row.lag_most}")
        for row in found.policies
    )  # fmt: skip


def loop_markdown(found: LoopReport) -> str:
    """The result as a Markdown document with a table of formula and simulation."""
    verdict = loop_lines(found, width=10**6, footer=False)[0].plain
    rows = [
        (_NAMES[row.quantity], _value(row.formula, row.unit), _value(row.simulated, row.unit))
        for row in found.agreement
    ]
    return f"**{verdict}**\n\n{markdown_table(('', 'formula', 'simulated'), rows)}\n"


def loop_charts(found: LoopReport) -> list[Chart]:
    """Queue over time, and the age of what is used in versions and in seconds."""
    told = partial(human.scaled, unit="")
    takes = [(when, [one.queue_tokens for one in same]) for when, same in groupby(found.queue, lambda one: one.time_s)]
    if len(found.steps) > _SAWTEETH:
        full = Line("when a batch is taken", tuple((when, max(levels)) for when, levels in takes if len(levels) > 1))
        low = Line("after it", tuple((when, min(levels)) for when, levels in takes if len(levels) > 1))
        queues: tuple[Line, ...] = (full, low)
    else:
        queues = (Line("queue", tuple((one.time_s, one.queue_tokens) for one in found.queue)),)
    limit = next((row.limit for row in found.constraints if row.name == "queue-most"), None)
    mean = Line("mean of the batch", tuple((one.taken_s, one.lag_mean) for one in found.steps))
    most = Line("oldest sample of it", tuple((one.taken_s, float(one.lag_most)) for one in found.steps))
    ages = Line("mean of the batch", tuple((one.taken_s, one.age_mean_s) for one in found.steps))
    oldest = Line("oldest sample of it", tuple((one.taken_s, one.age_most_s) for one in found.steps))
    return [
        _chart("queue", "Queue before training", "tokens", queues, told, limit, "bound"),
        _chart(
            "lag", "Versions behind at use", "versions", (mean, most), "{:.3g}".format, found.budget_versions, "budget"
        ),
        _chart("age", "Age at use", "age", (ages, oldest), human.seconds, found.budget_age_s, "budget"),
    ]


def _chart(
    name: str,
    title: str,
    axis: str,
    lines: tuple[Line, ...],
    told: Callable[[float], str],
    limit: float | None,
    label: str,
) -> Chart:
    return Chart(
        name, title, "lines", told, lines=lines, limit=limit, limit_label=label, axes=("time", axis),
        told_x=human.seconds, names=tuple(line.label for line in lines),
    )  # fmt: skip


def loop_svg(found: LoopReport) -> str:
    """The charts below each other as one SVG document."""
    return charts_svg([chart for chart in loop_charts(found) if found.steps], alone=True)


def loop_page(found: LoopReport) -> str:
    """The view as one HTML document with its charts, without scripts or links."""
    return page(loop_lines(found, width=_PAGE_WIDTH, verbose=True), figure=loop_svg(found) if found.steps else "")
