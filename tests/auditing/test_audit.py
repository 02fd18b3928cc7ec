"""The audit of an answer, the feedback to the search, and the command."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from audit_graphs import leaf_spine, levels

import mapsearch
from mapsearch.api import mapping_given
from mapsearch.audited import AUDIT_SCHEMA, Audit
from mapsearch.auditing.concurrent import background, contended_shares
from mapsearch.auditing.feedback import fed_back
from mapsearch.auditing.ideal import ideal_facts
from mapsearch.auditing.measure import ground_of, measure, with_shares
from mapsearch.cli.main import main
from mapsearch.cli.render import text_of
from mapsearch.costs.estimate import communication_s, estimate, point_of
from mapsearch.errors import InputError, UsageError
from mapsearch.inputs import read_inputs
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.run import Run
from mapsearch.placing.api import placement_of, placing_of
from mapsearch.topologies import fabric_of, load_topology
from mapsearch.topologies.events import simulated_s
from mapsearch.topologies.routing import Pairs

MODEL = "mixtral-8x7b"
RUN = Run.model_validate(
    {
        "name": "short",
        "sequence_length": 4096,
        "global_batch": 64,
        "precision": "bf16",
        "zero": [1],
        "schedule": ["1f1b"],
    }
)
SLOW = leaf_spine(2, 8, 4, 50, 100, {(0, 0): 2, (1, 0): 2}.items())
"""Two leaves of 8; both uplinks of one of four spines nearly dead: the cut hardly shows it, an even split does."""


def solved(topology, **about):
    answer = mapsearch.solve(MODEL, RUN, topology, profile="asic", top=1, proof="none", **about)
    assert answer.best is not None
    return answer.best


def audited(mapping, topology, **about):
    return mapsearch.audit(mapping, model=MODEL, run=RUN, topology=topology, profile="asic", **about)


def test_an_audit_of_a_regular_cluster_says_that_the_level_model_holds():
    topology = levels(("board", "switch", 8, 100), ("pod", "switch", 4, 25))
    found = audited(solved(topology), topology)

    assert found.holds and found.shares == {}
    assert found.audited_step_time_s == found.step_time_s
    for axis in found.axes:
        assert axis.ratio == pytest.approx(1.0)
        assert axis.simulated_bytes_per_s == pytest.approx(axis.routed_bytes_per_s, rel=0.1)
        assert axis.routed_bytes_per_s <= axis.alone_bytes_per_s * (1 + 1e-9)
        assert len(axis.rates) == axis.groups
        assert axis.worst.seconds == pytest.approx(axis.routed_s)
        assert axis.worst.load_bytes == pytest.approx(axis.worst.seconds * axis.worst.bytes_per_s)


def test_the_busiest_link_adds_up_its_axes():
    topology = levels(("board", "switch", 8, 100), ("pod", "switch", 4, 25))
    found = audited(Mapping(tp=4, dp=8, ep=8, edp=4), topology)

    assert [load.seconds for load in found.busiest] == sorted((load.seconds for load in found.busiest), reverse=True)
    for load in found.busiest:
        assert load.seconds == pytest.approx(sum(load.by_axis.values()))
    assert found.busiest[0].seconds >= max(axis.worst.seconds for axis in found.axes)


def test_streams_under_compute_share_links_with_what_stands_in_line():
    topology = levels(("board", "switch", 8, 100), ("pod", "switch", 4, 25))
    found = audited(Mapping(tp=8, dp=4, ep=8, edp=4, zero=1), topology)
    across = audited(
        Mapping(
            tp=2,
            dp=16,
            ep=8,
            edp=4,
            zero=1,
            placement={"ep": {"board": 2, "pod": 4}, "tp": {"board": 2}, "edp": {"board": 4}},
        ),
        topology,
    )

    for each in (*found.overlaps, *across.overlaps):
        assert each.hidden in ("dp", "edp")
        assert each.together_s > each.alone_s * 1.05
        assert each.together_s == pytest.approx(each.link.seconds)
    assert any({each.hidden, each.other} == {"dp", "ep"} for each in across.overlaps)


ZERO3 = RUN.replaced(zero=[3])


def beside_experts(zero):
    """DP groups and EP groups of 8 over 4 boards, both out of the same boards."""
    topology = levels(("board", "switch", 8, 100), ("pod", "switch", 4, 25))
    placement = {"ep": {"board": 2, "pod": 4}, "tp": {"board": 2}, "edp": {"board": 4}}
    mapping = Mapping(tp=2, dp=16, ep=8, edp=4, zero=zero, placement=placement)
    facts = read_inputs(MODEL, ZERO3 if zero == 3 else RUN, topology, "asic", None).facts
    return mapping, facts, measure(mapping, facts, ground_of(topology))


def test_a_stream_takes_its_half_of_the_links_that_it_shares_with_what_stands_in_line():
    mapping, facts, measured = beside_experts(3)
    streams = {"dp", "edp"}
    assert background(measured) >= streams
    busy = {each.axis: row for each, row in zip(measured.traffic, measured.busy_s, strict=True)}
    behind = sum(row for axis, row in busy.items() if axis in streams)
    together = max(float(mine + min(mine, other)) for mine, other in zip(busy["ep"], behind, strict=True))
    alone, shares = measured.shares(), measured.shares(contended=True)

    assert "ep" not in alone
    assert shares["ep"] == pytest.approx((float(busy["ep"].max()) / together,) * 2)
    assert 0.5 <= shares["ep"][0] < 0.95
    assert {axis: shares.get(axis) for axis in streams} == {axis: alone.get(axis) for axis in streams}
    plain, contended = (point_of(mapping, with_shares(facts, found)).step_time_s() for found in (alone, shares))
    # Never more than what the streams send, which is what they can hold others up.
    assert plain < contended <= plain + float(behind.max()) * (1 + 1e-9)


def test_fair_shares_hold_up_a_message_by_what_the_other_sends_meanwhile():
    # What contended shares say of one link, run through time: 3 GB in line and 1 GB behind it, 1 GB/s.
    topology = leaf_spine(2, 2, 1, 1, 1)
    router = ground_of(topology).router
    node = router.wires.place
    one = Pairs(np.array([node["g0.0"]]), np.array([node["g1.0"]]), np.array([3e9]))
    both = Pairs(*(np.array([node[a], node[b]]) for a, b in (("g0.0", "g0.1"), ("g1.0", "g1.1"))), np.array([3e9, 1e9]))

    assert simulated_s(router, one) == pytest.approx(3.0)
    assert simulated_s(router, both) == pytest.approx(3.0 + min(3.0, 1.0))


def test_a_reduction_once_per_step_meets_the_messages_of_one_microbatch():
    _, _, measured = beside_experts(1)
    busy = {each.axis: row for each, row in zip(measured.traffic, measured.busy_s, strict=True)}
    rounds = measured.point.cell.microbatches
    once = busy["dp"] + busy["edp"]
    worst = max(float(m + min(m / rounds, o)) for m, o in zip(busy["ep"], once, strict=True))

    assert {"dp", "edp"} <= background(measured)
    assert float(busy["ep"].max()) / worst > 1.0 - 1.0 / rounds - 1e-9
    assert contended_shares(measured, 1e-9).get("ep", 1.0) == pytest.approx(float(busy["ep"].max()) / worst)


def test_contention_is_fed_back():
    topology = levels(("board", "switch", 8, 100), ("pod", "switch", 4, 25))
    about = {"model": MODEL, "run": ZERO3, "topology": topology, "profile": "asic"}
    answer = mapsearch.solve(MODEL, ZERO3, topology, profile="asic", top=1, proof="none")
    plain = mapsearch.audit(answer.best, **about)
    found = mapsearch.audit(answer.best, **about, contended=True, feed_back=True)

    assert plain.audited_step_time_s == plain.step_time_s < plain.contended_step_time_s
    assert found.audited_step_time_s == plain.contended_step_time_s
    assert found.outcome in ("fixpoint", "cycle")
    assert min(turn.audited_step_time_s for turn in found.rounds) <= found.audited_step_time_s
    assert "both get half of a link" in text_of(plain, "table")


def test_what_was_measured_stands_beside_what_the_links_give():
    topology = levels(("board", "switch", 8, 100), ("pod", "switch", 4, 25))
    mapping = Mapping(dp=32, ep=32)
    links = next(axis for axis in audited(mapping, topology).axes if axis.axis == "ep").routed_bytes_per_s

    def told(share):
        found = audited(mapping, topology, measured={"ep": share * links})
        assert next(axis for axis in found.axes if axis.axis == "ep").measured_bytes_per_s == share * links
        return text_of(found, "table")

    assert "25.1 % of what the links give: as if 1 in 4 equal cables carried it" in told(0.251)
    assert "as far as links alone explain it" in told(0.9)
    assert "equal cables" not in told(0.42) and "do not explain the rest" in told(0.42)
    assert "more than they carry" in told(1.3)
    assert "Measured against" not in text_of(audited(mapping, topology), "table")
    with pytest.raises(UsageError, match="tp sends nothing in this mapping; give ep"):
        audited(mapping, topology, measured={"tp": 1e9})


def test_what_an_audit_finds_changes_the_mapping_and_settles():
    first = solved(SLOW)
    found = audited(first, SLOW, feed_back=True)

    assert not found.holds
    assert found.audited_step_time_s > found.step_time_s * 1.05
    assert found.outcome == "fixpoint"
    assert any(turn.changed for turn in found.rounds)
    assert found.rounds[0].audited_step_time_s == pytest.approx(found.audited_step_time_s)
    best = min(turn.audited_step_time_s for turn in found.rounds)
    assert found.best is not None
    assert found.best.step_time_s == pytest.approx(best)
    assert best < found.audited_step_time_s * 0.99
    # The last search, told what the last audit found, expects what that audit measures.
    assert found.rounds[-1].step_time_s == pytest.approx(found.rounds[-1].audited_step_time_s)
    assert not found.rounds[-1].changed


def test_rounds_are_bounded():
    found = audited(solved(SLOW), SLOW, feed_back=True, rounds=1)

    assert (found.outcome, len(found.rounds)) == ("bound", 2)


def test_no_mapping_of_a_small_cluster_has_a_shorter_audited_step_than_the_rounds_found_by_more_than_the_tolerance():
    # Every mapping in the answer, audited by itself: what the rounds end with is among the best.
    facts = read_inputs(MODEL, RUN, SLOW, "asic", None).facts
    ground = ground_of(SLOW)
    answer = mapsearch.solve(MODEL, RUN, SLOW, profile="asic", top=200, proof="none")
    rounds = fed_back(mapping_given(answer.mappings[0]), facts, ground)
    each = [audited(one, SLOW).audited_step_time_s for one in answer.mappings]

    assert rounds.best.audited_s <= min(each) * 1.05


@pytest.mark.slow
def test_three_devices_less_in_three_racks_of_asic_cost_what_the_audit_says():
    whole = load_topology("asic")
    holes = whole.model_copy(
        update={"down": ["rack3/board1/device2", "rack17/board0/device7", "rack40/board5/device0"]}
    )
    before, after = (mapsearch.solve(topology=one, top=1, proof="none") for one in (whole, holes))

    assert before.best is not None and after.best is not None
    lost = after.best.step_time_s / before.best.step_time_s
    measured = [
        mapsearch.audit(one.best, topology=topology).audited_step_time_s
        for one, topology in ((before, whole), (after, holes))
    ]
    assert lost > 1.0
    assert measured[1] / measured[0] == pytest.approx(lost, rel=0.05)


def test_three_devices_less_in_three_boards_never_make_solve_fail_and_cost_what_the_audit_says():
    whole = levels(("board", "switch", 4, 100), ("pod", "switch", 16, 25))
    holes = whole.model_copy(update={"down": ["board3/device2", "board7/device0", "board11/device3"]})
    before, after = solved(whole), solved(holes)
    measured = [audited(one, topology) for one, topology in ((before, whole), (after, holes))]

    assert after.devices <= 61
    assert measured[1].audited_step_time_s / measured[0].audited_step_time_s == pytest.approx(
        after.step_time_s / before.step_time_s, rel=0.05
    )
    gone = {"board3/device2", "board7/device0", "board11/device3"}
    ends = {end for axis in measured[1].axes for rate in axis.rates for end in (rate.first, rate.last)}
    assert not gone & ends


def test_a_search_with_shares_is_as_exact_as_one_without():
    # The whole space written out and every mapping costed by itself, with shares below and above 1.
    from dataclasses import replace

    fabric = replace(fabric_of(SLOW), axis_shares={"ep": (0.3, 0.1), "dp": (1.5, 0.5), "tp": (0.2, 0.2)})
    answer = mapsearch.solve(MODEL, RUN, fabric, profile="asic", top=20, backend="exhaustive")
    plain = mapsearch.solve(MODEL, RUN, SLOW, profile="asic", top=20, backend="exhaustive")

    assert (answer.status, answer.proofs[0].status) == ("optimal", "proven")
    assert [one.step_time_s for one in answer.mappings] != [one.step_time_s for one in plain.mappings]
    facts = read_inputs(MODEL, RUN, fabric, "asic", None).facts
    for one in answer.mappings:
        assert one.step_time_s == pytest.approx(estimate(mapping_given(one), facts).step_time_s)


@pytest.mark.parametrize("dispatcher", ["all-to-all", "all-gather", "deduplicated"])
@pytest.mark.parametrize("cp_kind", ["ring", "hybrid"])
@pytest.mark.parametrize("zero", [1, 2, 3])
def test_seconds_by_axis_add_up_to_the_communication_of_the_cost_model(dispatcher, cp_kind, zero):
    topology = levels(("board", "switch", 8, 100), ("pod", "switch", 8, 25))
    run = RUN.replaced(zero=[zero])
    facts = read_inputs(MODEL, run, topology, "asic", None).facts
    about = {"dispatcher": dispatcher, "cp_kind": cp_kind, "zero": zero}
    mapping = Mapping(tp=2, cp=8, dp=2, pp=2, etp=2, ep=8, edp=2, placement={"cp": {"board": 4, "pod": 2}}, **about)
    measured = measure(mapping, facts, ground_of(topology))
    told = communication_s(point_of(mapping, ideal_facts(facts)))
    found = dict.fromkeys(told, 0.0)
    for traffic, seconds in zip(measured.traffic, measured.step_s, strict=True):
        found[{"etp": "ep", "edp": "dp"}.get(traffic.axis, traffic.axis)] += seconds

    assert found == pytest.approx(told)
    assert min(found.values()) > 0.0


def test_ranks_can_stand_as_a_placement_says(tmp_path):
    # Two leaves joined by one thin link: pairs that exchange stand on one leaf, or on two.
    topology = leaf_spine(2, 2, 1, 50, 5)
    mapping = Mapping(dp=4, ep=2, edp=2)
    near = placement_of(placing_of(mapping, topology))
    swapped = [near.devices[place] for place in (0, 2, 1, 3)]
    far = near.model_copy(update={"devices": swapped})
    found = [{axis.axis: axis for axis in audited(mapping, topology, placement=one).axes} for one in (near, far)]

    assert found[0]["ep"].routed_bytes_per_s == pytest.approx(50e9)
    assert found[1]["ep"].routed_bytes_per_s == pytest.approx(2.5e9)
    with pytest.raises(InputError, match="another mapping: ep 2 and not 4"):
        audited(Mapping(dp=4, ep=4), topology, placement=near)
    with pytest.raises(UsageError, match="feedback"):
        audited(mapping, topology, placement=near, feed_back=True)
    gone = near.model_copy(update={"devices": ["g9.9", *near.devices[1:]]})
    with pytest.raises(InputError, match=r"no device 'g9\.9'"):
        audited(mapping, topology, placement=gone)


def test_rounds_that_break_a_relation_say_so():
    # Exposed communication may be half of the step; with what the graph gives, it is more for every mapping.
    run = RUN.replaced(exposed_limit=0.5)
    topology = leaf_spine(2, 8, 4, 50, 100, {(0, 0): 0.05, (1, 0): 0.05}.items())
    answer = mapsearch.solve(MODEL, run, topology, profile="asic", top=1, proof="none")
    assert answer.best is not None
    found = mapsearch.audit(answer.best, model=MODEL, run=run, topology=topology, profile="asic", feed_back=True)

    assert found.rounds[0].audited_step_time_s is None
    assert Audit.model_validate(json.loads(found.to_json())) == found
    assert "breaks a relation" in text_of(found, "table")


def test_the_same_audit_gives_the_same_bytes_and_reads_back():
    topology = levels(("board", "switch", 8, 100), ("pod", "switch", 4, 25))
    first, second = (audited(Mapping(tp=4, dp=8, ep=8, edp=4), topology).to_json() for _ in range(2))

    assert first == second
    data = json.loads(first)
    assert data["schema"] == AUDIT_SCHEMA
    assert Audit.model_validate(data).to_json() == first
    assert math.isfinite(data["audited_step_time_s"])


def test_what_cannot_be_audited_is_refused_in_a_sentence():
    topology = levels(("board", "switch", 8, 100), ("pod", "switch", 4, 25))
    with pytest.raises(UsageError, match="tolerance"):
        audited(Mapping(dp=32, ep=8, edp=4), topology, tolerance=2.0)
    with pytest.raises(UsageError, match="rounds"):
        audited(Mapping(dp=32, ep=8, edp=4), topology, rounds=0)
    with pytest.raises(InputError, match="uses 64 devices"):
        audited(Mapping(dp=64, ep=8, edp=8), topology)


def test_the_command_shows_a_table_and_json(tmp_path, capsys):
    from mapsearch import documents

    topology = tmp_path / "slow.yaml"
    topology.write_text(documents.dump(SLOW.model_dump(mode="json", exclude_defaults=True)))
    run = tmp_path / "run.yaml"
    run.write_text(
        "{name: short, sequence_length: 4096, global_batch: 64, precision: bf16, zero: [1], schedule: [1f1b]}\n"
    )
    answer = tmp_path / "answer.json"
    inputs = ["--model", MODEL, "--run", str(run), "--topology", str(topology), "--profile", "asic"]
    assert main(["solve", *inputs, "--top", "2", "--proof", "none", "-q", "-o", str(answer), "-f", "json"]) == 0
    capsys.readouterr()

    assert main(["audit", str(answer), "--feed-back", "-q"]) == 0
    table = capsys.readouterr().out
    assert "Bandwidth of each axis" in table and "Rounds" in table and "a fixpoint" in table
    assert max(map(len, table.splitlines())) <= 120
    assert main(["audit", f"{answer}#2", "-q", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == AUDIT_SCHEMA
    for format_ in ("csv", "md", "yaml", "html"):
        assert main(["audit", str(answer), "-q", "--format", format_]) == 0
        assert "gather" in capsys.readouterr().out
    assert main(["audit", f"{answer}#9"]) == 2
    assert main(["audit", str(answer), "-q", "--measured", "dp=1GB/s"]) == 0
    assert "GB/s measured," in capsys.readouterr().out
    for wrong in ("dp", "dp=fast", "dp=3", "xp=1GB/s"):
        assert main(["audit", str(answer), "--measured", wrong]) == 2
        problem = capsys.readouterr().err
        assert "measured" in problem and "Traceback" not in problem and problem.count("\n") == 1
