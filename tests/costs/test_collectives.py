"""Collectives: the closed forms of FORMULAS 4.1, the cuts of 4.4, and what must always hold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_facts import fabric, level, nodes, profile

from mapsearch.costs import collectives

V = 1e9
OPERATIONS = (
    collectives.all_gather_s,
    collectives.reduce_scatter_s,
    collectives.all_reduce_s,
    collectives.all_to_all_s,
    collectives.point_to_point_s,
)


@pytest.mark.parametrize("n", [2, 8, 64])
def test_closed_forms_on_one_switch(n):
    one = fabric(level("switch", 64, 100, us=3))
    facts = {"fabric": one, "profile": profile()}
    share = (n - 1) / n
    assert collectives.all_gather_s(V, [n], **facts) == pytest.approx((n - 1) * 3e-6 + share * V / 100e9)
    assert collectives.reduce_scatter_s(V, [n], **facts) == pytest.approx((n - 1) * 3e-6 + share * V / 100e9)
    assert collectives.all_reduce_s(V, [n], **facts) == pytest.approx(2 * ((n - 1) * 3e-6 + share * V / 100e9))
    assert collectives.all_to_all_s(V, [n], **facts) == pytest.approx(3e-6 + share * V / 100e9)
    assert collectives.point_to_point_s(V, [n], **facts) == pytest.approx(3e-6 + V / 100e9)


def test_all_to_all_pays_for_each_peer():
    # F4.1: (n-1) a' with a' the post cost; a half-peak message of 100 kB at 100 GB/s is a' = 1 us.
    facts = {
        "fabric": fabric(level("switch", 64, 100)),
        "profile": profile(all_to_all={"peak": 1.0, "half_bytes": "100 kB"}),
    }
    assert collectives.all_to_all_s(V, [8], **facts) == pytest.approx(7 * 1e-6 + 7 / 8 * V / 100e9)


def nccl(node_us):
    launch = {"peak": 1.0, "launch": "8.4 us"}
    return {
        "fabric": nodes(16, us=(node_us, 14.0)),
        "profile": profile(all_gather=launch, all_reduce=launch),
    }


def test_nccl_latencies():
    # F4.1: base 8.4 us; 3.4 us per NVLink ring step, 4.0 per tree step, 14 per network step.
    tiny = 1e-9
    assert collectives.all_gather_s(tiny, [8, 1], **nccl(3.4)) == pytest.approx(32e-6, abs=0.5e-6)
    assert collectives.all_reduce_s(tiny, [8, 1], **nccl(3.4)) == pytest.approx(56e-6, abs=0.5e-6)
    assert collectives.all_gather_s(tiny, [8, 16], **nccl(3.4)) == pytest.approx(599e-6, abs=0.5e-6)
    assert collectives.all_reduce_s(tiny, [8, 16], **nccl(4.0)) == pytest.approx(176e-6, abs=0.5e-6)
    ring = collectives.ring_steps([8, 16], fabric=nccl(3.4)["fabric"])
    assert list(ring) == [112, 15]
    assert 8.4 + 2 * (ring @ [3.4, 14.0]) == pytest.approx(1190, abs=1)
    assert list(collectives.tree_steps([8, 16], fabric=nccl(3.4)["fabric"])) == [7, 4]


def test_size_at_which_an_all_reduce_reaches_half_its_bandwidth():
    # F4.1: V_half = B * alpha / (2 * 7/8) = 11.8 MB for 8 GPUs at 370 GB/s.
    facts = nccl(3.4) | {"fabric": nodes(1, node_gb=370.0, us=(3.4, 14.0))}
    half = 370e9 * collectives.all_reduce_s(0.0, [8, 1], **facts) / 1.75
    assert half == pytest.approx(11.8e6, rel=5e-3)
    assert collectives.all_reduce_s(half, [8, 1], **facts) == pytest.approx(2 * 1.75 * half / 370e9)


def test_cuts_of_an_all_gather():
    # F4.4, 8-GPU node, p = 64: k = 8 loads the uplink with 0.875 V, k = 1 with 8 * 0.984 V (over 8 devices).
    cluster = nodes(64)
    together = collectives.crossing_bytes(V, [8, 8], fabric=cluster)
    apart = collectives.crossing_bytes(V, [1, 64], fabric=cluster)
    assert 8 * together[1] == pytest.approx(0.875 * V)
    assert 8 * apart[1] == pytest.approx(8 * 0.984 * V, rel=1e-3)
    assert apart[1] / together[1] == pytest.approx(9, abs=0.01)


def test_cuts_of_an_all_to_all_hardly_depend_on_placement():
    cluster = nodes(64)
    together = collectives.crossing_bytes(V, [8, 8], fabric=cluster, exchange=True)
    apart = collectives.crossing_bytes(V, [1, 64], fabric=cluster, exchange=True)
    assert 8 * together[1] == pytest.approx(0.875 * 8 * V)
    assert 8 * apart[1] == pytest.approx(0.984 * 8 * V, rel=1e-3)


def test_hierarchical_all_reduce_by_levels():
    # F4.1: inside 2(g-1)/g V, between 2(q-1)/q V/g per network card; they overlap, the slower one counts.
    facts = {"fabric": nodes(4, node_gb=450, nic_gb=50), "profile": profile()}
    between = 2 * 3 / 4 * V / 8 / 50e9
    inside = 2 * 31 / 32 * V / 450e9
    assert collectives.all_reduce_s(V, [8, 4], **facts) == pytest.approx(max(between, inside))


def test_published_all_to_all_times():
    # F4.1 table (4096 tokens, h 7168, K 8, BF16): seconds from the implied 72 % of NVLink and 81-90 % of the NIC.
    sent = 4096 * 7168 * 8 * 2
    for row, off_node, share, measured in [
        ([8, 1], 0, 0.72, 1265e-6),
        ([8, 2], 235e6, 0.81, 5774e-6),
        ([8, 4], 352e6, 0.87, 8059e-6),
        ([8, 8], 411e6, 0.90, 9164e-6),
    ]:
        efficiency = {"peak": share, "high_bandwidth_peak": 0.72}
        facts = {"fabric": nodes(8), "profile": profile(all_to_all=efficiency)}
        if off_node:
            crossing = collectives.crossing_bytes(sent, row, fabric=facts["fabric"], exchange=True)
            assert crossing[1] == pytest.approx(off_node, rel=5e-3)
        assert collectives.all_to_all_s(sent, row, **facts) == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(
    ("n", "measured", "implied"), [(8, 735e-6, 559), (16, 743e-6, 593), (32, 769e-6, 592), (64, 930e-6, 497)]
)
def test_published_all_to_all_times_in_one_large_domain(n, measured, implied):
    # The same table's GB200 row: GB/s of 900 inside NVL72.
    rack = {"fabric": fabric(level("rack", 72, 900, high_bandwidth=True))}
    share = profile(all_to_all={"peak": implied / 900})
    assert collectives.all_to_all_s(4096 * 7168 * 8 * 2, [n], profile=share, **rack) == pytest.approx(
        measured, rel=5e-3
    )


def test_full_mesh_uses_the_links_to_its_own_peers():
    mesh = {"fabric": fabric(level("node", 8, 196, kind="full_mesh")), "profile": profile()}
    assert collectives.all_gather_s(V, [8], **mesh) == pytest.approx(7 / 8 * V / 196e9)
    assert collectives.all_gather_s(V, [2], **mesh) == pytest.approx(V / 2 / 28e9)
    assert collectives.all_to_all_s(V, [4], **mesh) == pytest.approx(V / 4 / 28e9)
    assert collectives.point_to_point_s(V, [2], **mesh) == pytest.approx(V / 28e9)


def test_ring_forms():
    # W = 50 GB/s per link and way, two links per device. F4.1: AG = V/(2W), A2A = n v/(8 W); AG = 4 A2A at v = V/n.
    ring = {"fabric": fabric(level("ring", 16, 100, kind="ring")), "profile": profile()}
    assert collectives.all_gather_s(V, [16], **ring) == pytest.approx(15 / 16 * V / 100e9)
    assert collectives.all_to_all_s(V, [16], **ring) == pytest.approx(16 * V / (8 * 50e9))
    assert collectives.all_to_all_s(V / 16, [16], **ring) == pytest.approx(V / 100e9 / 4)
    # A segment cannot go round: half of the bandwidth, and an A2A of d v/(4 W).
    assert collectives.all_gather_s(V, [4], **ring) == pytest.approx(3 / 4 * V / 50e9)
    assert collectives.all_to_all_s(V, [4], **ring) == pytest.approx(4 * V / (4 * 50e9))


def test_torus_forms():
    # F4.1: AG over k axes V/(k W_bidir); A2A max_i d_i v/(8 W_i). 6 links of 100 GB/s.
    torus = {"fabric": fabric(level("pod", 256, 600, kind="torus", dims=(4, 8, 8))), "profile": profile()}
    assert collectives.all_gather_s(V, [256], **torus) == pytest.approx(255 / 256 * V / (3 * 200e9))
    assert collectives.all_gather_s(V, [32], **torus) == pytest.approx(31 / 32 * V / (2 * 200e9))
    assert collectives.all_to_all_s(V, [256], **torus) == pytest.approx(8 * V / (8 * 100e9))
    assert collectives.all_to_all_s(V, [4], **torus) == pytest.approx(4 * V / (8 * 100e9))
    assert collectives.point_to_point_s(V, [4], **torus) == pytest.approx(V / 100e9)


def test_part_of_a_torus_or_ring_is_still_paid_for():
    torus = {"fabric": fabric(level("pod", 256, 600, kind="torus", dims=(4, 8, 8))), "profile": profile()}
    # Groups of 3 in rows of 4 run on into the next row: no less than a segment of a ring takes, and not much more.
    assert 2 / 3 * V / 100e9 <= collectives.all_gather_s(V, [3], **torus) <= 1.25 * 2 / 3 * V / 100e9 * (1 + 1e-12)
    ring = {"fabric": fabric(level("ring", 16, 100, kind="ring")), "profile": profile()}
    assert collectives.all_to_all_s(V, [6], **ring) == pytest.approx(6 * V / (4 * 50e9))


def test_reduction_in_the_network_takes_one_pass():
    inside = fabric(level("node", 8, 450, us=3, in_network_reduction=True))
    facts = {"fabric": inside, "profile": profile()}
    assert collectives.all_reduce_s(V, [8], **facts) == pytest.approx(V / 450e9 + 2 * 3e-6)
    # Two ranks exchange halves: the ring's bytes are no more than one pass.
    assert collectives.all_reduce_s(V, [2], **facts) == pytest.approx(V / 450e9 + 2 * 3e-6)


def test_share_inside_the_high_bandwidth_domain():
    efficiency = {"peak": 0.8, "high_bandwidth_peak": 0.5}
    facts = {"fabric": nodes(8), "profile": profile(all_gather=efficiency)}
    assert collectives.all_gather_s(V, [8, 1], **facts) == pytest.approx(7 / 8 * V / 225e9)
    assert collectives.all_gather_s(V, [1, 8], **facts) == pytest.approx(7 / 8 * V / 40e9)


def test_row_of_another_fabric_is_refused():
    with pytest.raises(ValueError, match="2 levels"):
        collectives.all_gather_s(V, [2, 2, 2], fabric=nodes(8), profile=profile())


POWERS = st.sampled_from([1, 2, 4, 8])
ROWS = st.tuples(POWERS, POWERS, POWERS)
BYTES = st.sampled_from([0.0, 1.0, 1e5, 1e8, 1e10])


def three_levels(scale=1.0, kind="switch", us=(3, 6, 10)):
    return fabric(
        level("board", 8, 100 * scale, us=us[0], kind=kind),
        level("rack", 8, 25 * scale, us=us[1]),
        level("pod", 8, 12.5 * scale, us=us[2]),
    )


SOFTWARE = profile(
    **{
        name: {"peak": 0.8, "high_bandwidth_peak": 0.7, "half_bytes": "10 kB", "launch": "5 us"}
        for name in ("all_gather", "all_reduce", "all_to_all", "point_to_point")
    }
)


@pytest.mark.parametrize("operation", OPERATIONS)
@settings(max_examples=60, deadline=None)
@given(row=ROWS, payload=BYTES, kind=st.sampled_from(["switch", "full_mesh", "ring"]))
def test_twice_the_bandwidth_is_never_slower(operation, row, payload, kind):
    slow = operation(payload, row, fabric=three_levels(1.0, kind), profile=SOFTWARE)
    fast = operation(payload, row, fabric=three_levels(2.0, kind), profile=SOFTWARE)
    assert slow / 2 <= fast <= slow


@pytest.mark.parametrize("operation", OPERATIONS)
@settings(max_examples=60, deadline=None)
@given(row=ROWS, payload=BYTES, where=st.integers(0, 2))
def test_larger_group_is_never_cheaper(operation, row, payload, where):
    if operation is collectives.all_gather_s or operation is collectives.reduce_scatter_s:
        # The shard of each rank stays; the full tensor grows with the group.
        payloads = payload * np.prod(row), payload * np.prod(row) * 2
    else:
        payloads = payload, payload
    if operation is collectives.all_reduce_s and any(ways > 1 for ways in row[where + 1 :]):
        # Members added inside share the links further out between them: less for each device to reduce.
        return
    larger = [ways * (2 if index == where else 1) for index, ways in enumerate(row)]
    facts = {"fabric": three_levels(), "profile": SOFTWARE}
    assert operation(payloads[0], row, **facts) <= operation(payloads[1], larger, **facts) * (1 + 1e-12)


@pytest.mark.parametrize("operation", OPERATIONS)
@settings(max_examples=80, deadline=None)
@given(row=ROWS, payload=BYTES, inner=st.integers(0, 1))
def test_moving_a_cut_outward_is_never_cheaper(operation, row, payload, inner):
    if row[inner] == 1:
        return
    outward = list(row)
    outward[inner] //= 2
    outward[inner + 1] *= 2
    # A tree is a chain inside the innermost tier, so a shorter chain can start an all-reduce sooner: bytes only.
    us = (0, 0, 0) if operation is collectives.all_reduce_s else (3, 6, 10)
    facts = {"fabric": three_levels(us=us), "profile": SOFTWARE}
    assert operation(payload, row, **facts) <= operation(payload, outward, **facts) * (1 + 1e-12)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", ["switch", "full_mesh", "ring"])
def test_group_of_one_is_free(operation, kind):
    assert operation(V, [1, 1, 1], fabric=three_levels(kind=kind), profile=SOFTWARE) == 0


@pytest.mark.parametrize("operation", OPERATIONS)
def test_arrays_are_evaluated_as_scalars_are(operation):
    facts = {
        "fabric": fabric(
            level("mesh", 4, 300, us=1, kind="full_mesh"),
            level("torus", 16, 100, us=2, kind="torus", dims=(4, 4)),
            level("net", 8, 12.5, us=9, in_network_reduction=True),
        ),
        "profile": SOFTWARE,
    }
    rows = np.array([[[1, 1, 1], [2, 4, 1]], [[4, 16, 8], [1, 2, 8]], [[4, 1, 2], [2, 8, 1]]])
    payloads = np.array([1e4, 1e9])
    together = operation(payloads, rows, **facts)
    assert together.shape == (3, 2)
    for i, j in np.ndindex(3, 2):
        assert together[i, j] == operation(payloads[j], rows[i, j], **facts)
