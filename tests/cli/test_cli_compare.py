"""`mapsearch compare`: answers and fronts side by side, and what cannot be compared."""

from __future__ import annotations

import csv
import io
import json

import answers
import fronts
import numpy as np
import pytest

from mapsearch.comparing import compare
from mapsearch.comparison import Comparison
from mapsearch.errors import UsageError

GB = fronts.GB


@pytest.fixture
def written(tmp_path):
    def write(name, document):
        path = tmp_path / f"{name}.json"
        path.write_text(document if isinstance(document, str) else document.to_json())
        return path

    return write


def later():
    """An answer with the first mapping gone, a new one at the end, and more communication."""
    before = answers.optimal(4).mappings
    kept = [m.model_copy(update={"rank": rank}) for rank, m in enumerate(before[1:], start=1)]
    parts = {**kept[0].breakdown_s, "exposed": 9.0, "tail": 1.5}
    kept[0] = kept[0].model_copy(update={"breakdown_s": parts, "step_time_s": 20.0})
    new = answers.mapping(4, sizes={**answers.mapping().sizes, "tp": 2})
    return answers.optimal(4).model_copy(update={"mappings": [*kept, new], "provenance": fronts.elsewhere()})


def distinct(count):
    """An answer whose mappings all differ in sizes."""
    answer = answers.optimal(count)
    sized = [
        m.model_copy(update={"sizes": {**m.sizes, "vpp": m.rank}, "choices": answers.mapping().choices})
        for m in answer.mappings
    ]
    return answer.model_copy(update={"mappings": sized})


def test_changed_inputs_are_listed_and_equal_ones_are_not():
    found = {one.what: one.values for one in compare(answers.optimal(2), later()).changes}
    assert found["topology"] == ["asic", "hgx-h100"]
    assert found["model (contents)"] == ["0" * 12, "1" * 12]
    assert found["--at-most"] == ["", "tp=4"]
    assert found["ortools"] == ["9.15", "9.16"]
    assert found["assumptions"][1] == "topology hgx-h100: something (assumed)"
    assert not {"model", "run", "mapsearch"} & set(found)
    assert compare(answers.optimal(2), answers.optimal(3)).changes == []


def test_mappings_move_appear_and_vanish():
    first = distinct(3)
    moved = [first.mappings[2], first.mappings[1], answers.mapping(3, sizes={**answers.mapping().sizes, "tp": 2})]
    second = first.model_copy(
        update={"mappings": [m.model_copy(update={"rank": rank}) for rank, m in enumerate(moved, start=1)]}
    )
    found = compare(first, second).mappings
    assert [(one.move, one.ranks) for one in found] == [
        ("up", [3, 1]),
        ("same", [2, 2]),
        ("new", [None, 3]),
        ("gone", [1, None]),
    ]
    assert [one.move for one in compare(second, first, second).mappings][-1] == "elsewhere"


def test_terms_add_up_to_the_differences_of_the_wholes(written):
    first, second = written("before", answers.optimal(3)), written("after", later())
    found = compare(str(first), str(second))
    terms = {one.name: one for one in found.step_time_s}
    assert terms["tail"].values == [0.0, 1.5] and terms["tail"].differences == [0.0, 1.5]
    assert terms["step time"].values[1] == 20.0
    whole = {one.name: one for one in found.memory_bytes}["peak"]
    assert whole.values == [74.1 * GB] * 2 and whole.differences == [0.0, 0.0]
    ranked = compare(f"{first}#3", f"{second}#1", names=["a", "b"])
    assert ranked.names == ["a", "b"]
    assert ranked.step_time_s[-1].values[0] == pytest.approx(answers.optimal(3).mappings[2].step_time_s)


def volume(points, ideal, worst):
    """Share of the box below the reference that two objectives dominate, by adding up steps."""
    corner, area, height = 1.1, 0.0, 1.1
    for x, y in sorted((np.array(points) - ideal) / (np.array(worst) - ideal), key=lambda p: p[0]):
        if y < height:
            area, height = area + (corner - x) * (height - y), y
    return area / corner**2


def test_fronts_are_measured_against_each_other():
    pytest.importorskip("moocore")
    better = [(9.0, 80 * GB), (11.0, 40 * GB), (25.0, 20 * GB)]
    found = compare(fronts.front(), fronts.front(better), names=["a", "b"])
    share = {(one.by, one.of): (one.share, one.dominates) for one in found.coverage}
    assert share == {("a", "b"): (0.0, False), ("b", "a"): (0.75, False)}
    ideal, worst = np.array([9.0, 20 * GB]), np.array([40.0, 80 * GB])
    assert found.hypervolume == pytest.approx([volume(p, ideal, worst) for p in (fronts.POINTS, better)], rel=1e-9)
    assert found.reference == pytest.approx({"step_time": 9 + 1.1 * 31, "peak_memory": 20 * GB + 1.1 * 60 * GB})


def test_fronts_cross_where_the_faster_one_changes():
    other = [(9.0, 85 * GB), (13.0, 40 * GB), (15.0, 30 * GB), (50.0, 25 * GB)]
    found = compare(fronts.front(), fronts.front(other), names=["a", "b"]).crossings
    assert [(one.at / GB, one.leader_below, one.leader_above) for one in found] == [
        (25.0, "", "b"),
        (29.0, "b", "a"),
        (30.0, "a", "b"),
        (40.0, "b", "a"),
        (85.0, "a", "b"),
    ]
    assert compare(fronts.front(), fronts.front()).crossings == []


def test_without_moocore_the_rest_is_compared(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "moocore", None)
    found = compare(fronts.front(), fronts.front(fronts.POINTS[:2]), names=["a", "b"])
    assert found.hypervolume == [None, None] and "mapsearch[compare]" in found.notes[0]
    assert found.coverage[0].dominates and found.coverage[0].share == 1.0


@pytest.mark.parametrize("kind", ["answers", "fronts"])
def test_every_format_says_the_same(mapsearch, written, kind):
    pair = (answers.optimal(3), later()) if kind == "answers" else (fronts.front(), fronts.front(fronts.POINTS[1:]))
    paths = [written(name, document) for name, document in zip(("one", "two"), pair, strict=True)]

    def told(form, *more):
        result = mapsearch("compare", *paths, "--format", form, *more)
        assert result.code == 0, result.err
        return result.out

    found = Comparison.model_validate(json.loads(told("json")))
    assert found.kind == kind and found.names == ["one", "two"]
    assert told("json") == told("json")
    rows = list(csv.DictReader(io.StringIO(told("csv"))))
    assert {row["kind"] for row in rows} >= {"step_time_s", "memory_bytes", "rank"}
    assert "## Step time, part by part" in told("md")
    table = told("table")
    assert table.startswith(f"2 {kind}: one (") and "step time" in table and "Mappings that moved" in table
    if kind == "fronts":
        assert "Coverage" in table and "never slower" in table


def test_fronts_are_drawn_together_and_answers_are_not(mapsearch, written, tmp_path):
    pytest.importorskip("matplotlib")
    first, second = written("a", fronts.front()), written("b", fronts.front(fronts.POINTS[1:], knee=None))
    plot = tmp_path / "both.svg"
    assert mapsearch("compare", first, second, "--plot", plot).code == 0
    assert b"2 fronts" in plot.read_bytes()
    one = written("c", answers.optimal(2))
    assert "draws fronts; these are answers" in mapsearch("compare", one, one, "--plot", plot).err


def refused(result, *words):
    assert result.code == 2 and result.out == "" and result.err.count("\n") == 1, result.err
    for word in words:
        assert word in result.err, result.err


def test_what_cannot_be_compared_is_refused_in_a_sentence(mapsearch, written):
    answer, front = written("answer", answers.optimal(2)), written("front", fronts.front())
    report, other = written("report", answers.report()), written("other", fronts.front(objectives=["step_time"]))
    later_schema = written("later", answers.optimal(1).to_json().replace("mapsearch.answer/1", "mapsearch.answer/9"))
    refused(mapsearch("compare", answer, front), "answer is an answer and front is a front")
    refused(mapsearch("compare", front, other), "objectives must be the same")
    refused(mapsearch("compare", answer, report), "mapsearch.check/1")
    refused(mapsearch("compare", answer, later_schema), "mapsearch.answer/9")
    refused(mapsearch("compare", answer), "two or more")
    refused(mapsearch("compare", answer, f"{answer}#9"), "no mapping of rank 9")
    refused(mapsearch("compare", answer, f"{answer}#x"), "whole number")
    refused(mapsearch("compare", answer, written("list", "[1, 2]")), "no schema")
    refused(mapsearch("compare", answer, written("hole", '{"schema": "mapsearch.answer/1"}')), "is missing")


def test_documents_without_mappings_are_compared_without_terms():
    found = compare(answers.optimal(2), answers.infeasible())
    assert found.step_time_s == [] and "holds no mapping" in found.notes[0]
    assert {one.move for one in found.mappings} == {"gone"}
    with pytest.raises(UsageError, match="names for 2"):
        compare(answers.optimal(1), answers.optimal(1), names=["a"])
