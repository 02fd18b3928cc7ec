"""Fits give back what the times were made from; estimates with the fitted numbers give the times back."""

from __future__ import annotations

import itertools

import nccl_text
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapsearch.calibration.alpha_beta import efficiency, fit_collective, level_rate, level_terms, separate
from mapsearch.calibration.lines import best_pieces, usable_start
from mapsearch.calibration.nccl import read_text_logs
from mapsearch.calibration.parts import collective_part
from mapsearch.costs import collectives
from mapsearch.errors import InputError, MissingFact
from mapsearch.inventories.profiles import load_profile
from mapsearch.topologies.fabric import Device, Fabric, Level

PRICES = {
    "all_reduce": (collectives.all_reduce_s, "all_reduce"),
    "all_gather": (collectives.all_gather_s, "all_gather"),
    "reduce_scatter": (collectives.reduce_scatter_s, "all_gather"),
    "alltoall": (collectives.all_to_all_s, "all_to_all"),
}


def fitted(text: str, **options):
    (log,), _ = read_text_logs(text, file="log.txt")
    return fit_collective(log, **options)


@settings(max_examples=40, deadline=None)
@given(
    program=st.sampled_from(list(PRICES)),
    ranks=st.sampled_from([2, 4, 8, 64]),
    alpha=st.floats(5e-6, 2e-3),
    bandwidth=st.floats(5e9, 900e9),
)
def test_round_trip(program, ranks, alpha, bandwidth):
    """Times of a known alpha and B, printed with four digits, give both back."""
    fit = fitted(nccl_text.log(program, ranks, alpha=alpha, bandwidth=bandwidth, at=nccl_text.sizes(10, 33)))
    assert fit.usable is not None and len(fit.pieces) == 1
    assert fit.best.alpha_told and fit.best.alpha_s == pytest.approx(alpha, rel=0.02)
    assert fit.best.bandwidth_told and fit.bus_bytes_per_s(fit.best) == pytest.approx(bandwidth, rel=0.02)
    assert fit.best.worst < 0.02


@pytest.mark.parametrize("program", list(PRICES))
@pytest.mark.parametrize(("level", "inner"), [("inside", 1), ("across", 8)])
def test_an_estimate_with_the_fit_gives_the_log_back(program, level, inner):
    """The share and the launch mean in the cost model what they were fitted as (F4.1, F4.4)."""
    text = nccl_text.log(program, 32, alpha=500e-6, bandwidth=200e9, per_node=32 if level == "inside" else 8)
    fit = fitted(text, level=level)
    latency, bandwidth = 2e-6, 400e9
    share = efficiency(fit, bandwidth, latency_s=latency)
    below = Level("below", "switch", inner, 1e30, 0.0)
    measured = Level("measured", "switch", 32 // inner, bandwidth, latency)
    fabric = Fabric("f", Device("d", 0.0, 1.0, {}), (below, measured))
    price, field = PRICES[program]
    profile = load_profile("h100").model_copy(update={field: share})
    for size in (2**10, 2**20, 2**30):
        factor = nccl_text.FACTORS[program](32)
        expected = 500e-6 + size * factor / 200e9
        assert price(size, np.array([inner, 32 // inner]), fabric=fabric, profile=profile) == pytest.approx(
            expected, rel=0.03
        )


def test_terms_are_those_of_the_sheet():
    """F4.1 on one switch: bytes, latencies of the ring (tree for an all-reduce where shorter), peers."""
    gather = level_terms("all_gather", 8, level="inside")
    assert (gather.bytes, gather.latencies, gather.halves) == pytest.approx((7 / 8, 7, 7))
    exchange = level_terms("all_to_all", 8, level="inside")
    assert (exchange.bytes, exchange.latencies, exchange.halves) == pytest.approx((7 / 8, 1, 7))
    reduce = level_terms("all_reduce", 8, level="inside")
    assert reduce.bytes == pytest.approx(14 / 8)
    assert level_terms("all_reduce", 8, level="inside", in_network=True).bytes == pytest.approx(1.0)
    across = level_terms("all_to_all", 64, level="across", ranks_per_node=8)
    assert across.bytes == pytest.approx(1 - 8 / 64)
    with pytest.raises(MissingFact, match="ranks-per-node"):
        level_terms("all_to_all", 64, level="across")


def test_two_protocols_are_two_pieces():
    """Small messages at a quarter of the bandwidth: two lines, and a usable range at the large end."""
    at = nccl_text.sizes(8, 33)
    rows = "".join(nccl_text.row(size, min(10e-6 + size * 1.75 / 20e9, 60e-6 + size * 1.75 / 300e9)) for size in at)
    fit = fitted("# Collective test starting: all_reduce_perf\n" + nccl_text.HEADER + rows)
    assert len(fit.pieces) == 2
    assert fit.bus_bytes_per_s(fit.pieces[-1]) == pytest.approx(300e9, rel=0.03)
    assert fit.bus_bytes_per_s(fit.pieces[0]) == pytest.approx(20e9, rel=0.05)
    assert fit.usable is not None and fit.usable.most_bytes == 2**33 and fit.usable.worst < 0.16
    assert fit.whole.worst > fit.usable.worst


def test_an_outlier_does_not_move_the_fit():
    text = nccl_text.log(alpha=50e-6, bandwidth=200e9, at=nccl_text.sizes(12, 32))
    size = 2**24
    slow = nccl_text.row(size, 4 * (50e-6 + size * 1.75 / 200e9))
    fit = fitted(text.replace(nccl_text.HEADER, nccl_text.HEADER + slow))
    assert fit.whole.alpha_s == pytest.approx(50e-6, rel=0.05)
    assert fit.bus_bytes_per_s(fit.whole) == pytest.approx(200e9, rel=0.05)


def test_large_messages_only_do_not_tell_alpha():
    fit = fitted(nccl_text.log(alpha=30e-6, at=[2**32, 2**33]))
    assert not fit.best.alpha_told and fit.best.alpha_s == 0.0
    assert fit.bus_bytes_per_s(fit.best) == pytest.approx(300e9, rel=0.01)
    assert any("start-up cost is not told" in note for note in fit.notes)


def test_small_messages_only_do_not_tell_bandwidth():
    fit = fitted(nccl_text.log("alltoall", alpha=12e-6, at=[2048, 4096, 8192], per_node=8))
    assert fit.best.alpha_told and not fit.best.bandwidth_told and level_rate(fit, fit.best) is None
    with pytest.raises(InputError, match="too small to show a bandwidth"):
        efficiency(fit, 450e9)


def test_one_size():
    fit = fitted(nccl_text.log(alpha=0.0, at=[2**33], per_node=8))
    assert fit.bus_bytes_per_s(fit.best) == pytest.approx(300e9, rel=0.01)
    assert any("one message size" in note for note in fit.notes)


def test_which_half_is_fitted():
    text = nccl_text.log(bandwidth=200e9, alpha=20e-6, inner=0.5)
    assert fitted(text).whole.alpha_s == pytest.approx(20e-6, rel=0.03)
    fit = fitted(text, place="in-place")
    assert fit.whole.alpha_s == pytest.approx(10e-6, rel=0.03)
    assert any("in-place is 50% faster" in note for note in fit.notes)


def test_level_is_told_by_hosts():
    assert fitted(nccl_text.log(ranks=8, per_node=8)).level == "inside"
    assert fitted(nccl_text.log(ranks=16, per_node=8)).level == "across"
    text = nccl_text.log(ranks=16, per_node=4).replace("NVIDIA H100 80GB HBM3", "NVIDIA GB200")
    assert fitted(text).level is None, "a rack's domain spans hosts"
    with pytest.raises(MissingFact, match="give --level"):
        efficiency(fitted(text), 900e9)


def test_a_share_above_the_datasheet_is_refused():
    fit = fitted(nccl_text.log(bandwidth=470e9, per_node=8))
    with pytest.raises(InputError, match="in-network-reduction"):
        efficiency(fit, 450e9)
    assert efficiency(fit, 450e9, in_network=True).peak == pytest.approx(470 / 450 / 1.75, rel=0.01)


def test_logs_of_several_sizes_tell_launch_from_steps():
    """alpha = launch + (n - 1) a of an all-gather."""
    fits = [
        fitted(nccl_text.log("all_gather", n, alpha=8e-6 + (n - 1) * 3e-6, per_node=n, at=nccl_text.sizes(10, 33)))
        for n in (2, 4, 8, 16)
    ]
    launch, step = separate(fits)
    assert launch == pytest.approx(8e-6, rel=0.1) and step == pytest.approx(3e-6, rel=0.05)
    assert separate(fits[:1]) is None


def test_part_of_a_profile():
    fits = [fitted(nccl_text.log(program, 8, per_node=8, alpha=40e-6)) for program in PRICES]
    part = collective_part(fits, 450e9, latency_s=3e-6)
    assert set(part) == {"all_reduce", "all_gather", "all_to_all"}
    assert part["all_gather"]["high_bandwidth_peak"]["value"] == pytest.approx(300 / 450, rel=0.02)
    assert part["all_gather"]["launch"]["value"].endswith("us")
    assert "launch" not in collective_part(fits, 450e9)["all_gather"]
    across = fitted(nccl_text.log(ranks=16, per_node=8))
    # Nearly all of the array goes through every node, in rings as the library has them; the profile has to say so.
    gather = fitted(nccl_text.log("all_gather", 16, per_node=8, alpha=40e-6, bandwidth=320e9))
    outside = collective_part([gather], 50e9)
    assert outside["all_gather"]["peak"]["value"] == pytest.approx(320 / 8 / 50, rel=0.02)
    assert outside["rings"]["value"] == "flat" and "rings" not in part
    with pytest.raises(InputError, match="more than one level"):
        collective_part([*fits, across], 450e9)


def test_pieces_cover_all_rows():
    sizes = np.geomspace(1e3, 1e9, 900)
    times = np.where(sizes < 1e6, 1e-5 + sizes / 1e10, 1e-4 + sizes / 1e11)
    pieces = best_pieces(sizes, times)
    assert pieces[0][0] == 0 and pieces[-1][1] == 900
    assert all(first[1] == second[0] for first, second in itertools.pairwise(pieces))
    assert usable_start(sizes, times, 0.15) is not None
