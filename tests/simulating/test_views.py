"""The timeline as lines of a terminal and as SVG: what is drawn is what ran, and what is not drawn is said."""

import re
from xml.etree import ElementTree

import pytest

from mapsearch.axes import Schedule
from mapsearch.reports.timeline_svg import timeline_svg
from mapsearch.reports.timelines import drawing_lines
from mapsearch.simulating.orders import plan_of
from mapsearch.simulating.simulator import OpTimes, Timeline, simulate

EVEN = OpTimes(1.0, 1.0, 1.0)
SVG = "{http://www.w3.org/2000/svg}"


def ran(schedule: Schedule, p: int, m: int, v: int = 1, times: OpTimes = EVEN) -> Timeline:
    chunks = {Schedule.INTERLEAVED: v, Schedule.ZB_V: 2, Schedule.DUALPIPE: 2, Schedule.DUALPIPE_V: 2}.get(schedule, 1)
    return simulate(plan_of(schedule, p, v, m), [[times] * chunks] * p)


def plain(timeline: Timeline, width: int = 80) -> list[str]:
    return [line.plain for line in drawing_lines(timeline, width=width)]


def test_1f1b_drawn() -> None:
    assert plain(ran(Schedule.ONE_F_ONE_B, 2, 2), width=46)[:2] == [
        "stage 0 |F0--F1--........B0------....B1------|",
        "stage 1 |....F0--B0------F1--B1------........|",
    ]


def test_zero_bubble_drawn_with_two_chunks() -> None:
    """19 operations long, stage 1 one operation behind; a column is less than half of one."""
    lines = plain(ran(Schedule.ZB_V, 2, 3), width=56)
    assert lines[:2] == [
        "stage 0 |F0F1-F2f0-b0w0-f1b1w1-B0W0-f2b2w2-B1W1-B2W2-..|",
        "stage 1 |..F0-f0F1-f1b0-w0F2B0-W0f2-b1w1B1-b2B2-W1w2-W2|",
    ]
    assert "lower case: second chunk" in " ".join(lines)
    assert "W weight gradients" in " ".join(lines)


@pytest.mark.parametrize("schedule", list(Schedule), ids=lambda s: s.name.lower())
@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_and_stand_below_each_other(schedule: Schedule, width: int) -> None:
    v = 2 if schedule == Schedule.INTERLEAVED else 1
    lines = plain(ran(schedule, 12, 48, v), width)
    assert all(len(line) <= width for line in lines)
    assert {(line.index("|"), len(line)) for line in lines[:12]} == {(9, width)}


def test_many_microbatches_are_cut_in_the_middle_and_that_is_said() -> None:
    lines = plain(ran(Schedule.ONE_F_ONE_B, 4, 400))
    assert all("~" in line for line in lines[:4])
    assert lines[0].startswith("stage 0 |FFFF")
    assert lines[3].rstrip("|").endswith("...")
    said = " ".join(lines[4:])
    drawn = float(re.search(r"a column is ([\d.]+) s", said)[1]) * 70
    left_out = re.search(r"cut at ~: ([\d.]+) (s|min) in the middle are not drawn", said)
    seconds = float(left_out[1]) * (60 if left_out[2] == "min" else 1)
    assert seconds + drawn == pytest.approx(400 * 3 + 9, rel=0.01)
    assert "~" not in "".join(plain(ran(Schedule.ONE_F_ONE_B, 2, 4)))


def blocks(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [g for g in root.iter(f"{SVG}g") if (g.get("class") or "").startswith("o")]


@pytest.mark.parametrize("schedule", list(Schedule), ids=lambda s: s.name.lower())
def test_svg_has_a_block_with_its_times_for_every_operation(schedule: Schedule) -> None:
    timeline = ran(schedule, 4, 8, 2 if schedule == Schedule.INTERLEAVED else 1, OpTimes(1.0, 2.0, 0.5))
    root = ElementTree.fromstring(timeline_svg(timeline))
    drawn = blocks(root)
    assert len(drawn) == len(timeline.ops)
    scale = 786.0 / timeline.makespan_s
    for group, op in zip(drawn, timeline.ops, strict=True):
        rect = group.find(f"{SVG}rect")
        assert float(rect.get("x")) == pytest.approx(64 + op.start_s * scale, abs=0.06)
        assert float(rect.get("width")) == pytest.approx((op.end_s - op.start_s) * scale, abs=0.11)
        assert f"microbatch {op.microbatch}" in group.find(f"{SVG}title").text
    rows = [g for g in root.iter(f"{SVG}g") if g.get("role") == "group"]
    assert [row.get("tabindex") for row in rows] == ["0"] * 4
    assert "waits" in rows[0].get("aria-label")


def test_svg_stands_alone_and_is_the_same_each_time() -> None:
    timeline = ran(Schedule.DUALPIPE, 4, 8)
    text = timeline_svg(timeline)
    assert text == timeline_svg(ran(Schedule.DUALPIPE, 4, 8))
    assert "prefers-color-scheme:dark" in text
    assert not re.search(r"<script|href=|url\(|@import|http(?!://www\.w3\.org/2000/svg)", text)


def test_svg_of_many_operations_is_small_and_says_what_is_cut() -> None:
    timeline = ran(Schedule.ZB_H1, 16, 1024)
    text = timeline_svg(timeline)
    assert len(text) < 250_000
    root = ElementTree.fromstring(text)
    count = len(blocks(root))
    assert 1000 < count <= 16 * 80
    words = " ".join(element.text or "" for element in root.iter(f"{SVG}text"))
    assert f"{len(timeline.ops) - count:,} operations are not drawn" in words
    rights = [float(r.get("x")) + float(r.get("width")) for g in blocks(root) for r in g.iter(f"{SVG}rect")]
    assert max(rights) <= 850.1
    assert not any(g.get("tabindex") for g in blocks(root))  # the keyboard stops at stages, not at every block


def test_svg_of_many_stages_stays_below_a_megabyte() -> None:
    timeline = ran(Schedule.ONE_F_ONE_B, 64, 128)
    text = timeline_svg(timeline)
    assert len(text) < 1_000_000
    assert 3000 < len(blocks(ElementTree.fromstring(text))) <= 4000
    assert len(blocks(ElementTree.fromstring(timeline_svg(timeline, most_ops=100)))) <= 100


def test_svg_of_few_operations_is_reachable_block_by_block() -> None:
    root = ElementTree.fromstring(timeline_svg(ran(Schedule.ONE_F_ONE_B, 2, 4)))
    assert all(group.get("tabindex") == "0" for group in blocks(root))
