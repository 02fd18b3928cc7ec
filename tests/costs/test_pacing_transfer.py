"""Publishing and the steady state against worked numbers and against what others measured."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapsearch.costs import pacing, publishing, transfer
from mapsearch.costs.pacing import Pace
from mapsearch.costs.parameters import ledger
from mapsearch.costs.publishing import FORMATS
from mapsearch.inventories.models import load_model

MODEL = load_model("moe-5t")


def pace(**changes):
    """F1.8's example, with nothing but supply and training in the way."""
    given = {"train_s": 30.0, "batch_tokens": 2.0**22, "rollout_tokens_per_s": 1e5, "generate_s": 0.0}
    given |= {"publish_s": 0.0, "lost_s": 0.0, "held_batches": 0.0, "versions": 4}
    return Pace(**{**given, **changes})


def test_the_worked_example_of_f18():
    one = pace()
    assert one.supply_s == pytest.approx(41.94, abs=0.005)
    assert one.step_s - one.train_s == pytest.approx(11.94, abs=0.005)
    assert one.train_s / one.step_s == pytest.approx(0.715, abs=0.0005)
    assert pacing.binding(one) == ("supply", 30.0)


@pytest.mark.parametrize(
    ("changes", "name", "without_s"),
    [
        ({"rollout_tokens_per_s": 1e6}, "train", 30.0),
        ({"rollout_tokens_per_s": 1e6, "lost_s": 60.0}, "version", 30.0),
        ({"rollout_tokens_per_s": 1e6, "publish_s": 147.0}, "publish", 30.0),
        ({"rollout_tokens_per_s": 1e6, "generate_s": 90.0, "publish_s": 20.0, "held_batches": 3.0}, "queue", 30.0),
        ({"rollout_tokens_per_s": 1e6, "generate_s": 400.0, "publish_s": 1.0}, "version", 30.0),
    ],
)
def test_the_binding_constraint_is_the_one_whose_removal_helps_most(changes, name, without_s):
    found, step_s = pacing.binding(pace(**changes))
    assert found == name
    assert step_s == pytest.approx(without_s)


@given(
    st.floats(1.0, 1e3), st.floats(0.0, 1e3), st.floats(0.0, 1e3), st.sampled_from([0.0, 0.5, 1.5]), st.integers(1, 9),
    st.integers(1, 4), st.booleans(),
)  # fmt: skip
def test_the_step_keeps_the_lag_within_the_versions_and_no_shorter_one_does(
    train, made, pub, held, versions, every, paced
):
    one = pace(train_s=train, rollout_tokens_per_s=1e9, generate_s=made, publish_s=pub, held_batches=held,
               versions=versions, every=every, paced=paced)  # fmt: skip
    if one.room <= 0.0 and not (paced and one.paced_room >= 1.0):
        assert math.isinf(one.step_s)
        return
    assert one.lag_bound(one.step_s) <= versions
    assert one.publish_budget_s(one.step_s) >= pub * (1.0 - 1e-9) - 1e-9
    # Without pacing it is F1.8's bound, with the queue's oldest batch counted since the last update.
    flowing = replace(one, paced=False)
    if flowing.room > 0.0 and flowing.fresh_s > max(train, flowing.supply_s, flowing.repeated_s):
        assert flowing.lag_bound(flowing.step_s) <= versions
        assert flowing.lag_bound(0.999 * flowing.step_s) > versions or held == int(held)
        assert one.step_s <= flowing.step_s
        assert flowing.publish_budget_s(flowing.step_s) == pytest.approx(pub, abs=1e-6)


def test_paced_batches_that_start_with_their_version_are_the_synchronous_step_when_no_version_is_spare():
    one = pace(rollout_tokens_per_s=1e9, generate_s=40.0, publish_s=5.0, versions=0.0, mean_s=40.0)
    assert one.fresh_s == pytest.approx(pacing.synchronous_step_s(30.0, 40.0, 5.0))
    assert math.isinf(replace(one, paced=False).fresh_s)
    # One version to spare halves what a step has to hold, if there are places for two batches; with fewer places a
    # batch starts in as long as it takes to make one.
    assert replace(one, versions=1.0).fresh_s == pytest.approx(75.0 / 2.0)
    few = replace(one, versions=1.0, rollout_tokens_per_s=1e5)
    assert few.fresh_s == pytest.approx((75.0 + 41.94304) / 2.0)
    assert replace(few, versions=0.0).fresh_s == pytest.approx(75.0 + 1.94304)


MARIN = {"sync_publish_s": 48.79, "async_publish_s": 147.40, "generate_s": 35.87, "wait_s": 1.96, "slower_s": 68.06}
"""marin #8936, 20 updates of Qwen3-0.6B, comment of 2026-09-06: publishing of either loop, all generation of the
synchronous one, the asynchronous one's wait for admission, and by how much it was slower (0.56 s of it learning)."""


@pytest.mark.parametrize("train_s", [5.0, 35.87, 36.0, 100.0, 1000.0])
def test_marin_8936_publishing_turns_the_order_of_asynchronous_and_synchronous_round(train_s):
    """However long training is (the thread does not say): overlap saves at most the 35.87 s of generation, and
    publishing between two pools costs 98.61 s more."""
    synchronous = pacing.synchronous_step_s(train_s, MARIN["generate_s"], MARIN["sync_publish_s"])
    same = pacing.blocking_asynchronous_step_s(train_s, MARIN["generate_s"], MARIN["sync_publish_s"])
    slow = pacing.blocking_asynchronous_step_s(train_s, MARIN["generate_s"], MARIN["async_publish_s"])
    assert same < synchronous < slow
    saved = min(train_s, MARIN["generate_s"])
    assert slow - synchronous == pytest.approx(98.61 - saved, abs=1e-6)
    # Where training covers generation, as measured (1.96 s of waiting are left), the loss is the measured one.
    if saved == MARIN["generate_s"]:
        assert slow - synchronous == pytest.approx(MARIN["slower_s"], rel=0.1)
        assert slow - synchronous + MARIN["wait_s"] + 0.56 == pytest.approx(MARIN["slower_s"], rel=0.05)


def test_marin_8936_is_won_again_below_the_publish_time_at_which_both_are_equal():
    train_s, generate_s = 60.0, MARIN["generate_s"]
    synchronous = pacing.synchronous_step_s(train_s, generate_s, MARIN["sync_publish_s"])
    equal_s = MARIN["sync_publish_s"] + generate_s
    for publish_s, slower in ((0.99 * equal_s, False), (1.01 * equal_s, True)):
        assert (pacing.blocking_asynchronous_step_s(train_s, generate_s, publish_s) > synchronous) == slower


def test_openrlhf_647_the_bound_of_a_70b_model_is_2_8_s_and_80_s_is_beyond_it():
    """OpenRLHF #647, sglang #2708: 80 s for 70B against a bound of 2.8 s at 400 Gb/s."""
    volume = 2.0 * ledger(model=load_model("llama-3.1-70b")).total
    route = transfer.Route("push", volume, volume, 1, 1.0, 50e9)
    bound = transfer.transfer_bound_s(route, 1)
    assert bound == pytest.approx(2.8, rel=0.02)
    assert transfer.transfer_parts_s(route)["send"] == pytest.approx(bound)
    assert bound < 80.0
    # One source that pushes to as many replicas as 80 s are longer, one after the other, is as slow as measured.
    many = replace(route, replicas=28)
    assert transfer.transfer_parts_s(many)["send"] == pytest.approx(80.0, rel=0.02)
    assert transfer.transfer_parts_s(replace(many, path="tree"))["send"] == pytest.approx(bound)


NEMO_RL = {
    "4b PP2xDP4 -> TP4xDP2": (4.02e9, (4, 2), 8, 0.09, 0.09),
    "4b TP2xPP2xDP2 -> TP4xDP2": (4.02e9, (4, 2), 8, 0.13, 0.13),
    "4b TP2xDP4 -> TP4xDP2": (4.02e9, (4, 2), 8, 0.11, 0.15),
    "30b EP4xTP2xDP2 -> TP4xDP4": (30.5e9, (4, 4), 16, 0.54, 0.67),
    "30b EP4xTP2xPP2 -> TP4xDP4": (30.5e9, (4, 4), 16, 0.48, 0.52),
    "30b EP8xPP2 -> TP2xDP8": (30.5e9, (2, 8), 16, 0.51, 0.55),
    "30b EP8xPP2 -> TP8xDP2": (30.5e9, (8, 2), 16, 0.50, 0.51),
    "235b TP4xPP8xEP16 -> TP8xDP16": (235e9, (8, 16), 128, 4.56, 4.85),
    "dsv3 PP16xEP16 -> TP32xDP8": (671e9, (32, 8), 256, 7.65, 9.94),
}
"""Parameters, TP and DP of rollout, its devices, least and most seconds of a refit: NeMo-RL #2808."""


@pytest.mark.parametrize("row", NEMO_RL)
def test_refits_of_nemo_rl_are_within_a_factor_of_two(row):
    """Assumed: BF16 weights flow once, as down a tree, at one end-to-end rate for all models and layouts; that rate is
    taken from the row that changes no layout (4B, DP8 -> DP8: 0.07 to 0.08 s), which is not among those predicted."""
    rate = 2.0 * 4.02e9 / 0.075
    count, (_, replicas), devices, least, most = NEMO_RL[row]
    volume = float(publishing.publish_bytes(count, FORMATS["bf16"]))
    path = transfer.Route("tree", volume, volume / devices * replicas, replicas, 1.0, rate)
    parts = transfer.transfer_parts_s(path)
    assert parts["send"] == pytest.approx(float(publishing.transfer_s(volume, rate, replicas=replicas)))
    predicted = transfer.transfer_s(path)
    assert 0.5 <= predicted / ((least + most) / 2.0) <= 2.0


PUBLIC_DELTAS = {
    "vime #392, Qwen3-30B-A3B": (30.53e9, 0.0450, 0.0450, 8.24e9, 8.24e9),
    "verl #6974, Qwen3-30B-A3B": (30.53e9, 0.008, 0.011, 1.8e9, 1.8e9),
    "verl #7060, Qwen2.5-72B": (72.7e9, 0.021, 0.026, 8.6e9, 10.9e9),
}
"""Parameters, least and most share of BF16 values that changed in a step, least and most bytes that were sent, with
positions of 32 bits."""


@pytest.mark.parametrize("row", PUBLIC_DELTAS)
def test_changes_are_as_many_bytes_as_public_systems_send(row):
    count, low, high, least, most = PUBLIC_DELTAS[row]
    full = 2.0 * count
    sent = [float(publishing.delta_bytes(full, count, FORMATS["bf16"], form="indices", share=share, index_bytes=4.0))
            for share in (low, high)]  # fmt: skip
    assert sent[0] <= 1.07 * most
    assert sent[1] >= least
    if least == most and low == high:
        assert sent[0] == pytest.approx(least, rel=0.002)


@given(st.floats(1e-4, 1.0), st.sampled_from(sorted(FORMATS)), st.sampled_from(["indices", "bitmap", "tensors"]))
def test_changes_are_never_more_than_all_and_grow_with_their_share(share, name, form):
    count, weights = 1e9, FORMATS[name]
    full = publishing.publish_bytes(count, weights)

    def sent(part):
        return float(publishing.delta_bytes(full, count, weights, form=form, share=part, index_bytes=4.0))

    assert 0.0 < sent(share / 2.0) <= sent(share) <= full
    if form == "bitmap":
        assert sent(share) >= min(full, count / 8.0)


def test_positions_are_shorter_than_a_bitmap_up_to_one_change_in_thirty_two():
    count, weights = 1e9, FORMATS["bf16"]
    for share, shorter in ((1 / 33, True), (1 / 31, False)):
        sent = {form: float(publishing.delta_bytes(2e9, count, weights, form=form, share=share, index_bytes=4.0))
                for form in ("indices", "bitmap")}  # fmt: skip
        assert (sent["indices"] < sent["bitmap"]) == shorter


def test_pieces_overlap_as_intervals_do():
    np.testing.assert_allclose(transfer.shares(2, 3), [[1 / 3, 1 / 6, 0], [0, 1 / 6, 1 / 3]])
    np.testing.assert_allclose(transfer.shares(4, 1).sum(), 1.0)


@given(*(st.sampled_from([1, 2, 3, 4, 6, 8]) for _ in range(6)), st.sampled_from([1, 2, 4]))
def test_every_rollout_rank_receives_what_it_holds_and_senders_share_it(tp, ep, etp, to_tp, to_ep, to_etp, copies):
    sending = transfer.Layout(tp, copies, etp, ep, copies)
    receiving = transfer.Layout(to_tp, 1, to_etp, to_ep, 1)
    dense, experts = transfer.layout_bytes(sending, receiving, 720.0, 1440.0)
    # One copy of the receivers: every kind of receiver gets its whole piece from all copies of the senders together.
    np.testing.assert_allclose(copies * dense.sum(axis=0), 720.0 / to_tp)
    np.testing.assert_allclose(copies * experts.sum(axis=(0, 1)), 1440.0 / (to_ep * to_etp))
    # And every sender of a kind sends the same: its share of one copy.
    np.testing.assert_allclose(dense.sum(axis=1), 720.0 / (tp * copies))
    np.testing.assert_allclose(experts.sum(axis=(2, 3)), 1440.0 / (ep * etp * copies))


def test_equal_layouts_send_only_to_themselves():
    same = transfer.Layout(4, 1, 2, 4, 1)
    dense, experts = transfer.layout_bytes(same, same, 1.0, 1.0)
    np.testing.assert_allclose(dense, np.eye(4) / 4)
    np.testing.assert_allclose(experts.reshape(8, 8) * 8, np.einsum("ab,cd->acbd", np.eye(4), np.eye(2)).reshape(8, 8))


def test_the_first_and_last_stage_hold_more_and_send_more():
    share = sum(transfer.stage_parts(MODEL, [20, 20, 20, 20]))
    assert share.sum() == pytest.approx(1.0)
    assert share[0] > share[1] == share[2] < share[3]
    assert transfer.sent_share(sum(transfer.stage_parts(MODEL, [80])), 4096) == 1 / 4096
    assert transfer.sent_share(share, 4096) > 1 / 4096


def test_paths_are_ordered_and_none_beats_the_bound():
    base = transfer.Route("push", 5e12, 40e9, 16, 8.0, 50e9, 1e-5)
    seconds = {}
    for path, sources in (("push", 8.0), ("tree", 8.0), ("all", 2048.0)):
        parts = transfer.transfer_parts_s(replace(base, path=path, sources=sources))
        seconds[path] = max(parts["send"], parts["receive"]) + parts["fill"]
        assert seconds[path] >= transfer.transfer_bound_s(base, 2048)
    assert seconds["push"] == pytest.approx(16 * 5e12 / (8 * 50e9), rel=1e-6)
    assert seconds["all"] < seconds["tree"] < seconds["push"]


def test_stages_add_up_or_overlap():
    route = transfer.Route("all", 5e12, 40e9, 16, 2048.0, 50e9)
    stages = transfer.stages_s(
        route, parameters_sent=5e12 / 2048, sending_bytes_per_s=2e12, receiving_bytes_per_s=2e12, switch_s=1.0
    )
    serial = transfer.publish_s(stages, pipelined=False, chunks=1)
    assert serial == pytest.approx(sum(stages.values()))
    assert stages["verify"] == pytest.approx(0.02)
    assert stages["reshard"] == pytest.approx(0.04)
    chunked = transfer.publish_s(stages, pipelined=True, chunks=100)
    assert stages["transfer"] + 1.0 < chunked < serial


def test_a_switch_costs_what_each_policy_says():
    rests = {"longest_rest_s": 100.0, "mean_rest_s": 30.0}
    assert pacing.lost_s("drain", 2.0, **rests) == 72.0
    assert pacing.lost_s("restart", 2.0, **rests) == 32.0
    assert pacing.lost_s("side-by-side", 2.0, **rests) == 0.0


def test_a_request_waits_for_the_prompts_of_others():
    rate, token_s = pacing.sample_rates(64.0, 0.05, 0.2, 1000.0)
    assert 1.0 / rate == pytest.approx(1000 * 0.05 / 64 + 0.2)
    assert token_s * 1000.0 * rate == pytest.approx(64.0)  # Little: requests under way
