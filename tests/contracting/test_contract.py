"""A contract is complete: every domain has its rows, every row its recipe, inputs and verdict."""

from __future__ import annotations

import json

import pytest
from contracts import ASIC_MAPPING, e1_contract

from mapsearch.contract import Contract
from mapsearch.contracting import packing
from mapsearch.contracting.api import contract_of
from mapsearch.contracting.case import Pool
from mapsearch.contracting.domains import DOMAINS
from mapsearch.errors import InputError
from mapsearch.inventories.mapping import Mapping
from mapsearch.topologies import load_topology


def test_every_domain_is_filled_or_named_as_missing(asic):
    assert [domain.number for domain in asic.domains] == list(range(1, 11))
    for domain in asic.domains:
        assert domain.rows, domain.title
        given = [row for row in domain.rows if row.predicted is not None]
        assert given, domain.title
    missing = {domain.number for domain in asic.domains if domain.missing}
    assert missing == {8, 9}
    assert asic.domains[7].verdict == asic.domains[8].verdict == "not given"
    assert "rollout.bytes_per_s, rollout.replicas and rollout.weight_format" in asic.domains[7].missing
    assert "rollout.rollout_tokens_per_s" in asic.domains[8].missing


def test_every_row_says_where_it_comes_from_and_how_it_is_measured(asic):
    assert len({row.id for row in asic.rows}) == len(asic.rows)
    known = {row.id for row in asic.rows}
    for row in asic.rows:
        assert row.recipe.record and row.recipe.compute and row.formula and row.meaning, row.id
        free = row.verdict == "not given" or row.id.startswith(("publish", "async", "ep.library"))
        assert row.origins or free, row.id
        assert {*row.parts, *row.factors} <= known, row.id
        assert row.verdict == "not given" or row.predicted is not None, row.id
        for origin in row.origins:
            assert origin.tag in ("measured", "datasheet", "assumed", "fitted", "chosen", "cited", "not said"), row.id


def test_parts_add_up(asic):
    for row in asic.rows:
        if row.parts and all(asic.row(part).predicted is not None for part in row.parts):
            assert sum(asic.row(part).predicted for part in row.parts) == pytest.approx(row.predicted, rel=1e-9), row.id


def test_tags_follow_the_inputs(asic):
    capacity = {origin.field: origin for origin in asic.row("routing.cf_1.25.slots").origins}["routing.capacity_factor"]
    assert (capacity.document, capacity.file, capacity.value, capacity.tag) == (
        "run",
        "long-context-128k",
        "1.25",
        "assumed",
    )
    link = asic.row("place.cp.link_bytes_per_s")
    assert [(o.field, o.value, o.tag) for o in link.origins if o.document == "topology"] == [
        ("levels.pod.bandwidth", "12.5 GB/s", "assumed")
    ]
    assert link.verdict == "must be measured" and "pod is assumed" in link.why


def test_a_measured_bandwidth_vouches_for_its_groups():
    data = load_topology("asic").model_dump()
    for level in data["levels"]:
        level["sources"]["bandwidth"] = "measured: all pairs at once"
    from mapsearch.inventories.base import validate
    from mapsearch.topologies.spec import Topology

    contract = contract_of(Mapping.model_validate(ASIC_MAPPING), topology=validate(Topology, data, file="asic"))
    assert {row.verdict for row in contract.rows if row.id.endswith("link_bytes_per_s")} == {"holds"}


def test_the_same_inputs_give_the_same_bytes_and_read_back(asic):
    again = contract_of(Mapping.model_validate(ASIC_MAPPING)).to_json()
    assert again == asic.to_json()
    assert Contract.model_validate(json.loads(again)) == asic


def test_a_fitted_profile_gives_times_a_band():
    contract = contract_of(
        Mapping(tp=1, pp=1, ep=8, edp=1, dp=8, recompute="full"),
        model="mixtral-8x7b",
        topology="hgx-h100",
        run="long-context-128k",
        devices=8,
    )
    row = contract.row("step.time_s")
    assert row.band.low < row.predicted < row.band.high
    assert "measured runs" in row.band.rests_on


def test_a_model_without_experts_has_nothing_to_route():
    contract = contract_of(Mapping(tp=8, dp=512, edp=4096), model="gpt3-175b")
    assert [domain.number for domain in contract.domains if not domain.rows] == [4, 5]
    assert contract.domains[3].missing == ["the model has no experts"]


def test_a_mapping_that_does_not_fit_is_broken_and_says_so():
    contract = e1_contract({"tp": 1, "dp": 256, "edp": 4}, sequence_length=131072, global_batch=256)
    assert contract.verdict == "broken"
    assert contract.row("state.peak_bytes").verdict == "broken"
    assert contract.row("state.peak_bytes").margin < 0
    assert any("breaks hbm" in note for note in contract.notes)


def test_a_mapping_without_a_layout_has_no_contract():
    with pytest.raises(InputError, match="has no contract"):
        e1_contract({"pp": 128, "dp": 8, "ep": 8, "edp": 4})


def test_the_three_long_context_runs_are_told_apart(asic):
    far = e1_contract({"cp": 8, "dp": 8}, sequence_length=131072, global_batch=128)
    short, long, mixed = (far.row(f"context.{name}.step_s").predicted for name in ("short", "long", "packed_mixed"))
    assert short < mixed < long
    assert asic.row("context.long.step_s").predicted == pytest.approx(asic.mapping.step_time_s, rel=1e-12)
    attended = [asic.row(f"context.packed_{piece}.attended_tokens").predicted for piece in (4096, 16384, 65536)]
    assert attended == [4096, 16384, 65536]
    exposed = [far.row(f"context.{name}.cp_exposed_share").predicted for name in ("packed_4096", "long")]
    assert exposed[0] > exposed[1]  # less attention hides less of the ring
    traffic = {row.predicted for row in asic.rows if row.id.endswith(".cp_bytes") and row.domain == 2}
    assert len(traffic) == 1  # the same tokens send the same keys and values


def test_zigzag_balances_one_sequence_and_not_a_mixture():
    for cp in (1, 2, 4, 8, 64):
        assert packing.zigzag_imbalance([131072], cp) == pytest.approx(1.0, rel=1e-12)
        assert packing.contiguous_imbalance([131072], cp) == pytest.approx((2 * cp - 1) / cp, rel=1e-12)
    mixed = packing.filled(131072, 65536, 4096)
    assert sum(mixed) == 131072
    assert packing.zigzag_imbalance(mixed, 8) > 1.5


@pytest.mark.parametrize("pieces", [[7, 9], [16], [3, 3, 3, 3, 4], [1] * 16, [10, 2, 4]])
def test_packing_counts_pairs_as_a_loop_does(pieces):
    """Half-pairs by position: token t of its piece meets t + 1/2 keys on average, chunk edges where they fall."""
    cp, slot = 2, sum(pieces)
    seen = [t + 0.5 for piece in pieces for t in range(piece)]
    chunk = slot // (2 * cp)
    work = [sum(seen[i * chunk : (i + 1) * chunk]) for i in range(2 * cp)]
    ranks = [work[i] + work[2 * cp - 1 - i] for i in range(cp)]
    assert packing.zigzag_imbalance(pieces, cp) == pytest.approx(max(ranks) / (sum(ranks) / cp), rel=1e-12)
    assert packing.mean_square_length(pieces) == sum(p * p for p in pieces) / slot


def test_library_flags_decide_the_acceptance_list():
    base = load_topology("asic").model_dump()
    from mapsearch.inventories.base import validate
    from mapsearch.topologies.spec import Topology

    def verdicts(dispatcher, **library):
        topology = validate(Topology, {**base, "library": library}, file="asic")
        mapping = Mapping.model_validate({**ASIC_MAPPING, "dispatcher": dispatcher})
        contract = contract_of(mapping, topology=topology)
        return {row.id.removeprefix("ep.library."): row.verdict for row in contract.rows if "library" in row.id}

    none = verdicts("fixed-all-to-all")
    assert set(none.values()) == {"must be measured", "holds"} and none["variable_size"] == "holds"
    assert verdicts("all-to-all")["variable_size"] == "broken"  # the topology offers fixed sizes only
    shown = verdicts("fixed-all-to-all", whole_group=True, largest_group=8, timings=False)
    assert (shown["whole_group"], shown["group"], shown["timings"]) == ("holds", "broken", "broken")
    with pytest.raises(InputError, match="make them agree"):
        validate(Topology, {**base, "library": {"variable_size": True}}, file="asic")


def test_a_limit_on_exposure_is_a_limit_of_the_contract(asic):
    from mapsearch.inventories.base import load_inventory
    from mapsearch.inventories.run import Run

    run = load_inventory(Run, "long-context-128k").replaced(exposed_limit_by_class={"ep": 1e-6}, exposed_limit=0.9)
    contract = contract_of(Mapping.model_validate(ASIC_MAPPING), run=run)
    assert contract.row("ep.exposed_s").verdict == "broken"
    assert contract.row("step.exposed_share").verdict == "holds"
    assert asic.row("ep.exposed_s").verdict == "must be measured"


def test_rollout_inputs_fill_their_domains():
    pool = Pool(
        bytes_per_s=1e11,
        replicas=8,
        weight_format="fp8-block",
        quantise_s=5.0,
        reshard_s=6.0,
        verify_s=1.0,
        switch_s=0.5,
        rollout_tokens_per_s=1e9,
        generate_s=60.0,
        queue_tokens=1e7,
        most_queue_tokens=1e8,
        least_queue_tokens=1e6,
        version_lag=4.0,
    )
    contract = contract_of(Mapping.model_validate(ASIC_MAPPING), pool=pool)
    published = contract.row("publish.time_s")
    assert published.predicted == pytest.approx(12.5 + contract.row("publish.transfer_s").predicted)
    step, rate = contract.mapping.step_time_s, contract.mapping.tokens_per_s
    assert published.limit == pytest.approx(4 * step - 60 - 1e7 / rate)
    assert published.verdict == "holds"
    assert contract.row("async.version_lag").predicted >= 1 and contract.row("async.version_lag").verdict == "holds"
    assert contract.row("async.wait_s").verdict == "holds"
    assert contract.domains[8].missing == ["rollout.version policy of the serving side"]


def test_the_numbered_list_of_domains_is_the_ten():
    assert [domain.number for domain in DOMAINS] == list(range(1, 11))


def test_a_cluster_of_cables_names_its_links():
    from mapsearch.inventories.base import validate
    from mapsearch.topologies.spec import Topology

    device = load_topology("asic").model_dump()["device"]
    devices = [{"id": f"d{i}", "unit": f"board{i // 4}"} for i in range(8)]
    nodes = [*devices, *({"id": name, "type": "switch"} for name in ("s0", "s1", "top"))]
    links = [{"a": f"d{i}", "b": f"s{i // 4}", "bandwidth": "100 GB/s", "latency": "1 us"} for i in range(8)]
    links += [{"a": f"s{i}", "b": "top", "bandwidth": "100 GB/s", "latency": "1 us"} for i in range(2)]
    graph = validate(Topology, {"name": "cables", "device": device, "nodes": nodes, "links": links}, file="cables")
    mapping = Mapping(tp=2, dp=4, ep=8, recompute="full", zero=3)
    contract = contract_of(mapping, model="mixtral-8x7b", topology=graph)
    fields = {o.field for row in contract.rows for o in row.origins if o.document == "topology"}
    assert "links" in fields and not any(field.startswith("levels") for field in fields)
    assert contract.row("place.ep.groups").predicted == 1


def test_every_group_has_a_place_on_devices(asic):
    told = {row.id: row for row in asic.rows if ".kind_" in row.id}
    assert told["place.tp.kind_0"].predicted == 1024
    assert "rack0/board0/device{0..3} (all inside one board)" in told["place.tp.kind_0"].meaning
    assert "(all inside one rack)" in told["place.ep.kind_0"].meaning
    for axis in ("tp", "cp", "dp", "ep", "edp"):
        kinds = [row.predicted for name, row in told.items() if name.startswith(f"place.{axis}.")]
        assert sum(kinds) == asic.row(f"place.{axis}.groups").predicted
