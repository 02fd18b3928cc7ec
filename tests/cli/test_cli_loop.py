"""`mapsearch loop`: the loop of a file judged, simulated and drawn."""

from __future__ import annotations

import csv
import io
import json
from xml.etree import ElementTree

import answers
import pytest
from jsonschema import Draft202012Validator

LOOP = """name: example
training: {batch_tokens: 4194304, step: 30 s}
rollout: {tokens_per_s: {value: 100000, source: assumed}, concurrency: 128, lengths: {mean: 16384, cv: 0}}
publish: {time: 10 s}
"""
BUDGET = "queue: {most: 1e7}\nbudget: {versions: 1}\npolicy: down-weight\ndecay: 0.5\n"


@pytest.fixture
def ask(mapsearch, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")

    def asked(text, *options):
        path = tmp_path / "loop.yaml"
        path.write_text(text)
        return mapsearch("loop", path, "--steps", 40, *options)

    return asked


def test_the_example_in_words(ask):
    shown = ask(LOOP)
    assert shown.code == 0
    assert shown.out.startswith("STABLE: the supply of tokens sets the step: 41.94 s, of which 11.94 s waiting")
    assert "duty 71.5 %" in shown.out
    assert "supply       broken" in shown.out
    assert "Rests on loop example: rollout tokens per s (assumed)" in shown.out
    assert all(len(line) <= 120 for line in shown.out.splitlines())


def test_policies_are_shown_where_there_is_a_budget(ask):
    shown = ask(LOOP + BUDGET)
    assert "What the policies cost" in shown.out
    assert all(f"\n  {policy}" in shown.out for policy in ("wait", "drop", "down-weight"))


def test_documents_are_valid_and_repeat(ask, mapsearch):
    first, again = ask(LOOP + BUDGET, "-f", "json").out, ask(LOOP + BUDGET, "-f", "json").out
    assert first == again != ask(LOOP.replace("cv: 0", "cv: 1"), "-f", "json").out
    schema = json.loads(mapsearch("schema", "loop-report").out)
    document = json.loads(first)
    assert list(Draft202012Validator(schema).iter_errors(document)) == []
    assert document["steady"]["duty"] == pytest.approx(0.715, abs=5e-4)
    assert document["simulated_grows"] == ""
    rows = list(csv.DictReader(io.StringIO(ask(LOOP, "-f", "csv").out)))
    assert len(rows) == 40
    assert float(rows[-1]["waited_s"]) == pytest.approx(11.94, abs=0.5)


def test_charts_of_queue_and_staleness(ask, tmp_path):
    drawn = ElementTree.fromstring(ask(LOOP + BUDGET, "-f", "svg").out)
    paths = [one for one in drawn.iter("{http://www.w3.org/2000/svg}path") if one.get("stroke")]
    assert len(paths) == 5  # the queue; mean and oldest, in versions and in seconds
    assert all("NaN" not in one.get("d") and one.get("d").count("L") >= 39 for one in paths)
    page = ask(LOOP, "-o", tmp_path / "loop.html")
    assert page.code == 0
    assert "<svg" in (text := (tmp_path / "loop.html").read_text())
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")


def test_charts_as_pictures():
    pytest.importorskip("matplotlib")
    from mapsearch.costs.lengths import constant
    from mapsearch.looping.api import judge_loop
    from mapsearch.looping.facts import LoopFacts
    from mapsearch.reports.exports.charts import chart_png
    from mapsearch.reports.loops import loop_charts

    found = judge_loop(LoopFacts(2**20, 30.0, 1e5, 16, constant(16384), most_versions=2), steps=20)
    assert all(chart_png(chart).startswith(b"\x89PNG") for chart in loop_charts(found))


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (("step: 30 s", "step: 60 s"), "UNSTABLE: the queue of samples before training grows by 30.1 k tokens/s"),
        (("time: 10 s", "time: 60 s, order: every"), "UNSTABLE: the queue of versions before publishing grows by"),
        (("time: 10 s}", "time: 10 s}\nbudget: {age: 2 s}\npolicy: drop"), "UNSTABLE: no sample is ever young enough"),
    ],
)
def test_unstable_loops_say_what_grows(ask, change, verdict):
    shown = ask(LOOP.replace(*change))
    assert shown.code == 3
    assert shown.out.startswith(verdict)
    grows = json.loads(ask(LOOP.replace(*change), "-f", "json").out)
    assert grows["simulated_grows"] == grows["steady"]["grows"] != ""


def test_step_and_batch_of_an_answer(ask, tmp_path):
    answer = answers.optimal()
    (tmp_path / "answer.json").write_text(answer.to_json())
    text = LOOP.replace("{batch_tokens: 4194304, step: 30 s}", "{answer: answer.json}")
    text = text.replace("100000", str(answer.best.tokens_per_s)).replace("16384", str(answer.best.tokens_per_s / 100))
    found = json.loads(ask(text, "-f", "json").out)
    assert found["train_s"] == answer.best.step_time_s
    assert found["batch_tokens"] == pytest.approx(answer.best.tokens_per_s * answer.best.step_time_s)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("training:", "trainng:"), "trainng: unknown key (did you mean 'training'?)"),
        (("step: 30 s", "step: 30"), "training.step: 30 has no unit"),
        ((", step: 30 s", ""), "training: needs batch_tokens and step, or the answer"),
        (("mean: 16384, cv: 0", "mean: 16384"), "rollout.lengths: mean and cv are given together"),
        (
            ("mean: 16384, cv: 0", "quantiles: {0.5: 10, 1: 20}"),
            "rollout.lengths: quantiles reach from 0.5 to 1; give 0",
        ),
        (("mean: 16384, cv: 0", "values: [10, 20], weights: [1]"), "rollout.lengths: has 1 weights for 2 values"),
        (("time: 10 s", "time: 10 s, pause: 20 s"), "pause_s: 20 s is a part of publish_s and more than all of it"),
        (("publish:", "policy: down-weight\npublish:"), "policy down-weight needs decay"),
        (("publish:", "queue: {most: 1000}\npublish:"), "no step could begin"),
        (("{mean: 16384", "{mean: 1"), "trajectories, more than"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(ask, change, words):
    shown = ask(LOOP.replace(*change))
    assert shown.code == 2
    assert words in shown.err
    assert "loop.yaml: " in shown.err
    assert len(shown.err.splitlines()) == 1
