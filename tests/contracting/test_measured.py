"""Measurements beside a contract: agreement, verdicts, and which formula a difference is laid to."""

from __future__ import annotations

import json

import pytest
from contracts import e1_contract

from mapsearch import documents
from mapsearch.contracting.measured import held_against, template_text
from mapsearch.errors import InputError
from mapsearch.inventories.base import validate
from mapsearch.inventories.measurement import Measurement


def measured(contract, **values):
    """Measurements that agree with the contract but for the given factors or values."""
    quantities = {}
    for name, value in values.items():
        row = contract.row(name.replace("__", "."))
        taken = value(row.predicted) if callable(value) else value
        quantities[row.id] = {"value": taken, "unit": row.unit, "source": "measured: a test"}
    return validate(Measurement, {"name": "test", "quantities": quantities}, file="m.yaml")


def times(factor):
    return lambda value: value * factor


def test_a_count_must_be_the_same(e1):
    held = held_against(e1, measured(e1, ep__dispatch_bytes=times(1.0), ep__combine_bytes=times(1.25)))
    assert held.row("ep.dispatch_bytes").verdict == "holds"
    assert held.row("ep.dispatch_bytes").measured.agreement == "agrees"
    off = held.row("ep.combine_bytes")
    assert (off.verdict, off.measured.agreement) == ("broken", "differs")
    assert off.measured.difference == pytest.approx(0.25)
    assert "F1.4" in off.measured.sentence
    assert held.verdict == "broken" and held.domains[4].verdict == "broken"
    assert e1.verdict == "not given"  # the contract itself is as it was


def test_a_limit_is_judged_by_what_was_measured(e1):
    held = held_against(e1, measured(e1, state__peak_bytes=times(1.3)))
    row = held.row("state.peak_bytes")
    assert e1.row("state.peak_bytes").verdict == "holds"
    assert row.verdict == "broken" and row.margin == pytest.approx(row.limit - 1.3 * row.predicted)


def test_without_a_band_nothing_is_broken(e1):
    row = held_against(e1, measured(e1, step__time_s=times(2.0))).row("step.time_s")
    assert (row.verdict, row.measured.agreement) == ("holds", "no band")


def test_several_values_count_by_their_median(e1):
    row = held_against(e1, measured(e1, step__time_s=[30.0, 20.0, 90.0])).row("step.time_s")
    assert (row.measured.value, row.measured.low, row.measured.high, row.measured.samples) == (30.0, 20.0, 90.0, 3)


def test_a_longer_step_is_laid_to_its_part(e1):
    parts = {row.replace(".", "__"): times(1.0) for row in e1.row("step.time_s").parts}
    slow = e1.row("step.ep_s").predicted
    parts["step__ep_s"] = times(1.5)
    parts["step__time_s"] = lambda value: value + 0.5 * slow
    found = {one.id: one for one in held_against(e1, measured(e1, **parts)).attributions}
    told = found["step.time_s"]
    assert (told.parts[0].id, told.missing) == ("step.ep_s", [])
    assert told.parts[0].share == pytest.approx(1.0)
    assert told.unexplained == pytest.approx(0.0, abs=1e-9)
    assert "100% of the difference is step.ep_s (F4.2, F4.3)" in told.sentence


def test_compute_loss_is_told_apart_from_waiting(e1):
    """The same longer step, once by slower kernels and once by waiting: the two sums say which."""
    longer = {"step__time_s": lambda value: value + 3.0}
    for slow, other in (("compute", "waiting"), ("waiting", "compute")):
        values = {
            **longer,
            f"step__{slow}_s": lambda value: value + 3.0,
            f"step__{other}_s": times(1.0),
            f"step__{'experts' if slow == 'compute' else 'bubble'}_s": lambda value: value + 3.0,
        }
        held = held_against(e1, measured(e1, **values))
        found = {one.id: one for one in held.attributions}
        assert found[f"step.{slow}_s"].difference == pytest.approx(3.0)
        assert found[f"step.{other}_s"].difference == pytest.approx(0.0)
        assert found[f"step.{slow}_s"].parts[0].share == pytest.approx(1.0)


def test_a_ratio_is_laid_to_its_factors(e1):
    values = {
        "ep__dispatch_s": times(2.0),
        "ep__layer_wire_bytes": times(1.0),
        "ep__effective_bytes_per_s": times(0.5),
    }
    found = {one.id: one for one in held_against(e1, measured(e1, **values)).attributions}["ep.dispatch_s"]
    assert found.kind == "product" and found.parts[0].id == "ep.effective_bytes_per_s"
    assert found.parts[0].share == pytest.approx(1.0)
    assert found.unexplained == pytest.approx(0.0, abs=1e-12)


def test_what_was_not_measured_is_named(e1):
    found = {one.id: one for one in held_against(e1, measured(e1, step__time_s=times(1.2))).attributions}
    assert "measure step." in found["step.time_s"].sentence
    assert found["step.time_s"].missing == e1.row("step.time_s").parts


def test_a_part_that_explains_little_is_not_blamed(e1):
    values = {"step__time_s": lambda value: value + 10.0, "step__tp_s": lambda value: value + 0.1}
    found = {one.id: one for one in held_against(e1, measured(e1, **values)).attributions}
    assert "lies in no measured part" in found["step.time_s"].sentence


def test_words_hold_when_they_are_yes(e1):
    held = held_against(e1, measured(e1, ep__library__whole_group="yes", ep__library__timings=False))
    assert held.row("ep.library.whole_group").verdict == "holds"
    assert held.row("ep.library.timings").verdict == "broken"


@pytest.mark.parametrize(
    ("quantities", "message"),
    [
        ({"step.tiem_s": {"value": 1, "unit": "s", "source": "x"}}, r"step.tiem_s: .*did you mean 'step.time_s'"),
        (
            {"step.time_s": {"value": 1, "unit": "ms", "source": "x"}},
            r"quantities.step.time_s.unit: is in 'ms'; give it in 's'",
        ),
        ({"step.time_s": {"value": 1, "unit": "s"}}, r"quantities.step.time_s.source: is missing"),
        ({"step.time_s": {"value": "long", "unit": "s", "source": "x"}}, r"takes a number"),
        ({"ep.library.sparse": {"value": 3, "unit": "word", "source": "x"}}, r"takes a word"),
    ],
)
def test_slips_are_named(e1, quantities, message):
    told = validate(Measurement, {"quantities": quantities}, file="m.yaml")
    with pytest.raises(InputError, match=message):
        held_against(e1, told, file="m.yaml")


def test_the_template_reads_back_and_holds_every_row(e1):
    text = template_text(e1, "E1: a mapping")
    told = validate(Measurement, documents.parse(text, file="t.yaml"), file="t.yaml")
    assert set(told.quantities) == {row.id for row in e1.rows}
    assert held_against(e1, told).verdict == e1.verdict
    filled = {
        name: {"value": row.predicted, "unit": row.unit, "source": "predicted"}
        for name, row in ((row.id, row) for row in e1.rows)
        if row.predicted is not None
    }
    held = held_against(e1, validate(Measurement, json.loads(json.dumps({"quantities": filled})), file="t.yaml"))
    assert not [row.id for row in held.rows if row.verdict == "broken"]
    assert all(abs(one.unexplained) <= 1e-6 * max(abs(one.difference), 1e-9) + 1e-9 for one in held.attributions)


def test_fitted_bands_refute_a_prediction():
    contract = e1_contract()
    band = {"low": 20.0, "high": 30.0, "rests_on": "68% of 100 measured runs"}
    from mapsearch.contract import Band

    rows = [
        row.model_copy(update={"band": Band(**band)}) if row.id == "step.time_s" else row
        for row in contract.domains[5].rows
    ]
    domains = [d.model_copy(update={"rows": rows}) if d.number == 6 else d for d in contract.domains]
    banded = contract.model_copy(update={"domains": domains})
    assert held_against(banded, measured(banded, step__time_s=25.0)).row("step.time_s").verdict == "holds"
    assert held_against(banded, measured(banded, step__time_s=35.0)).row("step.time_s").verdict == "broken"
