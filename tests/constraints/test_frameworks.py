"""Releases of frameworks: which rules hold when, what would satisfy them, and physics told apart from them."""

from __future__ import annotations

import pytest
from test_rules import framework, judge
from tiny_cases import tiny_facts

from mapsearch import check
from mapsearch.constraints.framework import BY_NAME, RULES, relations
from mapsearch.errors import InputError
from mapsearch.frameworks import RELEASES, named
from mapsearch.inventories.base import validate
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.run import Run

RUN = {"sequence_length": 4096, "global_batch": 64}


def rules_of(name: str) -> set[str]:
    return {relation.name for relation in relations(validate(Run, {**RUN, "framework": name}, file="run"))}


@pytest.mark.parametrize(
    ("rule", "name", "holds"),
    [
        ("megatron_kv_heads", "megatron@0.15", True),  # ms-swift issue 8219: refused by 0.15, run by 0.16
        ("megatron_kv_heads", "megatron@0.15.2", True),
        ("megatron_kv_heads", "megatron@0.16", False),
        ("megatron_kv_heads", "megatron", False),
        ("megatron_even_stages", "megatron@0.8", True),  # uneven stages: changelog of core 0.9
        ("megatron_even_stages", "megatron@0.9", False),
        ("fsdp2_interleave_multiple", "fsdp2@2.4", True),  # pytorch pull request 129597
        ("fsdp2_interleave_multiple", "fsdp2@2.5", False),
        ("fsdp2_interleave", "fsdp2@2.5", True),
        ("mindspeed_kv_heads", "mindspeed", True),  # the newest core that it patches is 0.12
        ("torchtitan_etp", "torchtitan@0.2", False),  # pull request 3167
        ("torchtitan_etp", "torchtitan", True),
    ],
)
def test_a_rule_holds_in_its_releases(rule, name, holds):
    assert (rule in rules_of(name)) is holds


def test_releases_are_read():
    assert named("megatron") == ("megatron", RELEASES["megatron"][-1])
    assert named("megatron@0.14.1") == ("megatron", "0.14.1")
    for wrong, words in (("megaton", "did you mean 'megatron'"), ("megatron@7", "no known release '7'; known: 0.8")):
        with pytest.raises(InputError, match=words):
            validate(Run, {**RUN, "framework": wrong}, file="run")


def test_every_rule_says_source_and_origin():
    for name, rules in RULES.items():
        assert len({one.relation.name for one in rules}) == len(rules) == len(BY_NAME[name])
        assert all(one.relation.source and one.relation.origin == name for one in rules)


def test_a_broken_rule_names_the_values_that_satisfy_it():
    old = framework("megatron@0.15", model={"heads": 32, "kv_heads": 2})
    found = judge("megatron_kv_heads", old, tp=8)
    assert found.reason == (
        "megatron: 2 KV heads do not split evenly over TP 8: 2 left over; TP 1 or 2 would satisfy it"
    )


def checked(mapping, **facts):
    wide = tiny_facts((8, 8), hbm_mb=1e6, micro_batch=[1], **facts)
    report = check(
        validate(Mapping, mapping, file="mapping"),
        model=wide.model,
        run=wide.run,
        topology=wide.fabric,
        profile=wide.profile,
    )
    return report, " ".join(report.notes)


FOLDED = {"tp": 8, "pp": 8, "ep": 8}
SHAPE = {"layers": 8, "heads": 8, "kv_heads": 8}


def test_b14_tp8_pp8_ep8_on_64_devices_is_legal():
    """PEERS B14: EP lies over TP by parallel folding; a planner that wants TP x PP x EP <= 64 refuses it."""
    report, notes = checked(FOLDED, framework="megatron", model=SHAPE)
    assert report.feasible and report.mapping.devices == 64
    assert "Megatron core before 0.10 refuses it" in notes and "DP is 1 with EP 8, TP 8 with ETP 1" in notes
    old, notes = checked(FOLDED, framework="megatron@0.9", model=SHAPE)
    assert [margin.relation for margin in old.broken] == ["megatron_folding"]
    assert "legal on hardware; Megatron core 0.9 refuses it (megatron_folding)" in notes


def test_physics_is_not_blamed_on_a_framework():
    report, notes = checked(
        {"tp": 8, "dp": 2, "edp": 16}, framework="megatron", model={"layers": 4, "heads": 12, "kv_heads": 12}
    )
    assert not report.feasible
    assert "legal on hardware; Megatron core" not in notes


def test_rules_over_both_grids_are_known_to_check():
    mapping = {"tp": 4, "dp": 2, "ep": 2, "edp": 4}
    report, _ = checked(mapping, framework="torchtitan", model=SHAPE)
    assert report.broken[-1].reason.startswith(
        "torchtitan from main on: MoE models take EP of at least TP 4, but EP is 2"
    )
    report, notes = checked(mapping, framework="torchtitan@0.2", model=SHAPE)
    assert [margin.relation for margin in report.broken] == ["torchtitan_ep_region"]
    assert "legal on hardware; torchtitan 0.2 refuses it" in notes
