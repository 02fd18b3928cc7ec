"""Skew by number of expert ranks: from a histogram by hand, and as a search takes it."""

import numpy as np
import pytest
from tiny_cases import tiny_facts

from mapsearch.api import check, solve
from mapsearch.errors import InputError
from mapsearch.experts.histogram import histogram_of
from mapsearch.experts.table import from_ranks, skew_table, with_loads
from mapsearch.inventories.mapping import Mapping


def test_the_table_by_hand():
    table = skew_table(histogram_of(np.array([8.0, 0.0, 1.0, 3.0]), "hand"), placed=False)
    assert {ranks: (one.rank_skew, one.pair_skew) for ranks, one in table.items()} == {
        1: (1.0, 1.0),
        2: (pytest.approx(8 / 6, abs=1e-6), pytest.approx(8 / 6, abs=1e-6)),
        4: (pytest.approx(8 / 3, abs=1e-6), pytest.approx(8 / 3, abs=1e-6)),
    }


@pytest.mark.parametrize("placed", [False, True])
def test_more_ranks_are_never_more_even_and_placing_never_worse(placed):
    loads = np.floor(np.random.default_rng(1).pareto(1.5, (2, 3, 48)) * 100) + 1
    table = skew_table(histogram_of(loads, "random"), placed=placed)
    assert list(table) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 48]
    for less, more in ((1, 2), (2, 4), (4, 8), (8, 16), (16, 48), (3, 6), (6, 12), (12, 24), (24, 48)):
        assert table[less].rank_skew <= table[more].rank_skew * (1 + 0.02 * placed)
    standing = skew_table(histogram_of(loads.sum(axis=0, keepdims=True), "sum"), placed=False)
    best = skew_table(histogram_of(loads.sum(axis=0, keepdims=True), "sum"), placed=True)
    assert all(best[ranks].rank_skew <= standing[ranks].rank_skew for ranks in best)
    assert sum(best[ranks].rank_skew < 0.95 * standing[ranks].rank_skew for ranks in best) >= 4


def test_sources_are_merged_or_shared_out():
    tokens = np.array([[4.0, 0.0], [0.0, 2.0], [1.0, 1.0], [3.0, 5.0]])
    assert from_ranks(tokens, 2).tolist() == [[4.0, 2.0], [4.0, 6.0]]
    assert from_ranks(tokens, 8)[:2].tolist() == [[2.0, 0.0], [2.0, 0.0]]
    thirds = from_ranks(tokens, 3)
    assert thirds.sum(axis=0).tolist() == pytest.approx(tokens.sum(axis=0).tolist())
    assert thirds[0].tolist() == pytest.approx([4.0, 2.0 / 3])


def case(tmp_path, experts, **routing):
    """Four devices, and loads of which the first expert takes most."""
    facts = tiny_facts((4,), recompute=["none"], micro_batch=[1])
    loads = np.ones(experts)
    loads[0] = 40.0 * experts
    path = tmp_path / "loads.npz"
    np.savez(path, tokens=loads)
    run = facts.run.replaced(routing={**facts.run.routing.model_dump(), "loads": str(path), **routing})
    return {"model": facts.model, "run": run, "topology": facts.fabric, "profile": facts.profile}, facts


def test_a_search_weighs_ep_with_the_skew_it_has(tmp_path):
    experts = tiny_facts((4,)).model.moe.experts
    inputs, facts = case(tmp_path, experts)
    even = solve(**{**inputs, "run": facts.run}, top=50)
    skewed = solve(**inputs, top=50)
    assert even.status == skewed.status == "optimal"
    before = {str(one.sizes) + str(one.choices) + str(one.placement): one for one in even.mappings}
    slower = same = 0
    for one in skewed.mappings:
        plain = before.get(str(one.sizes) + str(one.choices) + str(one.placement))
        if plain is not None and one.sizes["ep"] == 1:
            assert one.step_time_s == pytest.approx(plain.step_time_s, rel=1e-12)
            same += 1
        elif plain is not None:
            assert one.step_time_s > plain.step_time_s
            slower += 1
    assert same and slower
    assert skewed.mappings[0].sizes["ep"] <= even.mappings[0].sizes["ep"]
    assert "by_ranks" in with_loads(inputs["run"], facts.model).routing.sources


def test_check_takes_the_file_too(tmp_path):
    inputs, facts = case(tmp_path, tiny_facts((4,)).model.moe.experts)
    mapping = Mapping(tp=1, cp=1, dp=4, pp=1, etp=1, ep=4, edp=1)
    skewed, even = check(mapping, **inputs), check(mapping, **{**inputs, "run": facts.run})
    assert skewed.mapping.step_time_s > even.mapping.step_time_s


def test_loads_of_another_model_are_refused(tmp_path):
    inputs, _ = case(tmp_path, 6)
    with pytest.raises(InputError, match=r"loads\.npz.*6 experts"):
        solve(**inputs)


def test_a_number_and_a_table_are_refused(tmp_path):
    facts = tiny_facts((4,))
    with pytest.raises(InputError, match="not both"):
        facts.run.replaced(routing={"rank_skew": 2.0, "by_ranks": {2: {"rank_skew": 1.0, "pair_skew": 1.0}}})
