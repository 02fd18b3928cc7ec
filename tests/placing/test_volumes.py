"""Bytes that a rank sends, against counts by hand."""

from __future__ import annotations

import pytest

from mapsearch.inputs import read_inputs
from mapsearch.inventories.mapping import Mapping
from mapsearch.placing.volumes import sent_bytes_of


@pytest.fixture(scope="module")
def facts():
    return read_inputs("mixtral-8x7b", "long-context-128k", "asic-64", None, None).facts


def test_an_axis_of_one_sends_nothing(facts):
    sent = sent_bytes_of(Mapping(dp=64, edp=64), facts)
    assert {axis for axis, bytes_ in sent.items() if bytes_ > 0.0} == {"dp", "edp"}


def test_stages_pass_on_their_hidden_states(facts):
    """Forward and backward of every microbatch: tokens x hidden, 2 bytes each; a middle stage sends one of each."""
    model, run = facts.model, facts.run
    sent = sent_bytes_of(Mapping(pp=4, dp=16, edp=16), facts)
    each = run.sequence_length * model.hidden * 2
    microbatches = run.global_batch // 16
    assert sent["pp"] == pytest.approx(2 * microbatches * each)


def test_what_is_sent_does_not_depend_on_the_cluster(facts):
    elsewhere = read_inputs("mixtral-8x7b", "long-context-128k", "hgx-h100", "asic", 64).facts
    mapping = Mapping(tp=4, dp=16, ep=8, edp=8)
    assert sent_bytes_of(mapping, facts) == pytest.approx(sent_bytes_of(mapping, elsewhere), rel=1e-6)


def test_twice_the_experts_axis_sends_no_less(facts):
    small, large = (sent_bytes_of(Mapping(dp=64, ep=ep, edp=64 // ep), facts)["ep"] for ep in (4, 8))
    assert 0.0 < small <= large
