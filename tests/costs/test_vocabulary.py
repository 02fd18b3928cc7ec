"""Where the vocabulary lives on a pipeline: whole at its ends, with layers moved away, or split over all stages."""

import numpy as np
import pytest
from timing_facts import dsv3_model, e1_model, fabric, level, profile, run

from mapsearch.axes import Schedule
from mapsearch.costs.estimate import EveryStage, estimate, point_of
from mapsearch.costs.footprint import dense_parameters
from mapsearch.costs.stages import layout
from mapsearch.costs.views import CellView, Facts
from mapsearch.inventories.mapping import Mapping

EIGHT = fabric(level("node", 8, 1e6, high_bandwidth=True))
# The study's 4B model (arXiv 2411.05288): 32 layers of width 3072, 256 Ki entries, on eight stages.
SHAPE = {
    "layers": 32,
    "hidden": 3072,
    "heads": 24,
    "kv_heads": 24,
    "ffn": 12288,
    "gated_ffn": False,
    "moe": None,
    "vocab": 262144,
}
GPT = e1_model(**SHAPE)


def facts(vocabulary, **changes):
    told = {"sequence_length": 2048, "global_batch": 128, "vocabulary": vocabulary}
    return Facts(e1_model(**{**SHAPE, **changes}), run(**told), EIGHT, profile())


def parameters_by_stage(given, pp=8):
    point = point_of(Mapping(pp=pp, dp=8 // pp, edp=8 // pp), given)
    cell = EveryStage(**{name: getattr(point.cell, name) for name in CellView.__dataclass_fields__})
    view = type(point.attention)(cell, *(getattr(point.attention, n) for n in ("tp", "cp", "tp_row", "cp_row")),
                                 point.attention.dp_row, point.attention.cp_kind)  # fmt: skip
    # One record stands for all stages.
    return np.concatenate([np.atleast_1d(p) for p in dense_parameters(view)]).tolist()


def test_layers_move_away_from_the_head_by_their_flop():
    # A layer has 2 * 12 h^2 and its attention, the head 2 h V: worth seven layers of these, more than a stage of four.
    moved = layout(8, Schedule.ONE_F_ONE_B, model=GPT, length=2048.0, vocabulary="redistributed")
    assert layout(8, Schedule.ONE_F_ONE_B, model=GPT, length=2048.0).dense == (4,) * 8
    assert sum(moved.dense) == 32 and moved.dense[-1] == 1 and max(moved.dense) == 5
    assert moved.output == (0, 0, 0, 0, 0, 0, 0, 1)
    # One stage has nowhere to move them to.
    assert layout(1, Schedule.ONE_F_ONE_B, model=GPT, length=2048.0, vocabulary="redistributed").dense == (32,)


@pytest.mark.parametrize("schedule", list(Schedule))
@pytest.mark.parametrize("vocabulary", ["split-1", "split-2"])
def test_a_split_vocabulary_stands_on_every_stage_in_equal_parts(schedule, vocabulary):
    plan = layout(4, int(schedule), model=GPT, length=2048.0, vocabulary=vocabulary)
    assert plan.embedding == plan.output == (0.25,) * 4
    assert sum(plan.dense) == 32


def test_nothing_is_lost_by_splitting():
    whole, split = parameters_by_stage(facts("last")), parameters_by_stage(facts("split-2"))
    assert sum(whole) == pytest.approx(sum(split))
    assert max(split) == pytest.approx(min(split))
    assert max(whole) > 1.5 * max(split)


@pytest.mark.parametrize(("vocabulary", "pp", "tables"), [("last", 8, 2), ("split-2", 8, 1), ("last", 1, 1)])
def test_a_tied_table_is_held_once_where_both_ends_meet(vocabulary, pp, tables):
    tied, untied = (parameters_by_stage(facts(vocabulary, tied_embeddings=tie), pp) for tie in (True, False))
    assert sum(untied) - sum(tied) == pytest.approx((2 - tables) * 262144 * 3072)


def test_steps_of_all_four():
    """Work is conserved: split stages are equal, and take the mean of what unequal ones take."""
    found = {name: estimate(Mapping(pp=8), facts(name)) for name in ("last", "redistributed", "split-1", "split-2")}
    assert found["last"].step_time_s > found["redistributed"].step_time_s > found["split-1"].step_time_s
    assert found["split-1"].step_time_s == found["split-2"].step_time_s
    rounds = {name: found[name].step_time_s / found["split-2"].step_time_s for name in found}
    # Four layers and a head of some seven, over four layers and an eighth of the head; its loss is not counted here.
    assert (4 + 7) / (4 + 7 / 8) < rounds["last"] < 3.0


def test_split_vocabularies_keep_one_or_two_more_microbatches():
    """arXiv 2411.05288, Figure 10: p + 2 and p + 1 under 1F1B."""
    held = {name: estimate(Mapping(pp=8), facts(name)) for name in ("split-1", "split-2")}
    one, two = (held[name].memory_by_stage_bytes for name in ("split-2", "split-1"))
    per_microbatch = np.array(two) - np.array(one)
    assert per_microbatch[0] > 0 and per_microbatch == pytest.approx(np.full(8, per_microbatch[0]))
    first, last = one[0], one[-1]
    # From stage to stage one microbatch less, nothing else: stage 0 holds 9, the last 2.
    assert first - last == pytest.approx(7 * per_microbatch[0])


def test_experts_and_mtp_layers_stay_where_they_are():
    model = dsv3_model(mtp_layers=1)
    split = layout(4, Schedule.ONE_F_ONE_B, model=model, length=4096.0, vocabulary="split-2")
    assert sum(split.layers) == 62 and split.output == (0.25,) * 4
