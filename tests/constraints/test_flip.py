"""Each relation alone can make a small problem infeasible, and it is feasible again without it (STYLE: flip tests)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from explain_oracle import judged
from tiny_cases import tiny_facts

from mapsearch.constraints import ALL, relations_of
from mapsearch.constraints.framework import BY_NAME, RULES
from mapsearch.constraints.frameworks.mindspeed import REPLACED
from mapsearch.constraints.frameworks.rules import FrameworkRule
from mapsearch.solver.problem import problem_of
from mapsearch.solver.search import search

PLAIN = {"micro_batch": [1], "recompute": ["none"], "schedule": ["1f1b"]}
MLA = {"q_rank": 32, "kv_rank": 32, "nope_dim": 16, "rope_dim": 16, "value_dim": 32}
TWELVE = {"heads": 12, "kv_heads": 1}
SHARED = {"experts": 8, "top_k": 2, "expert_ffn": 768, "shared_ffn": 256}


def fixed(sizes=(2, 2), *, model=None, hbm_mb=1e3, nvme_mb=4e3, **run):
    """Facts whose run is plain but for the given keys; keys of single axes fix them."""
    fix = {axis: run.pop(axis) for axis in ("tp", "cp", "dp", "pp", "etp", "ep") if axis in run}
    return tiny_facts(sizes, model=model, hbm_mb=hbm_mb, nvme_mb=nvme_mb, constraints={"fix": fix}, **{**PLAIN, **run})


def with_device(facts, **changes):
    return replace(facts, fabric=replace(facts.fabric, device=replace(facts.fabric.device, **changes)))


def with_fabric(facts, **changes):
    return replace(facts, fabric=replace(facts.fabric, **changes))


def with_framework(facts):
    """The same facts under MindSpeed on the oldest core that it patches, which has the rules of older cores too."""
    _name, _, release = facts.run.framework.partition("@")
    older = release and float(release.split(".")[1]) < 12
    return replace(facts, run=facts.run.replaced(framework="mindspeed@0.8" if older else "mindspeed"))


INSTANCES = {
    "batch_divides": lambda: fixed(global_batch=7, micro_batch=[2]),
    "layers_fill_stages": lambda: fixed((4, 2), pp=8),
    "bidirectional_batch": lambda: fixed(schedule=["dualpipe"], pp=2, global_batch=2),
    "zero_bubble_batch": lambda: fixed(schedule=["zb-2p"], pp=2, dp=1, global_batch=3),
    "heads_divide": lambda: fixed((3, 2), tp=3, model={"kv_heads": 1}, sequence_length=768),
    "kv_heads_divide": lambda: fixed((3, 2), tp=3, model={"heads": 12, "kv_heads": 2}, sequence_length=768),
    "ffn_divides": lambda: fixed((3, 2), tp=3, model={**TWELVE, "moe": None}, sequence_length=768),
    "shared_ffn_divides": lambda: fixed((3, 2), tp=3, model={**TWELVE, "moe": SHARED}, sequence_length=768),
    "sequence_divides": lambda: fixed((3, 2), tp=3, model=TWELVE),
    "ulysses_heads_divide": lambda: fixed(cp=4, cp_kind=["ulysses"], model={"heads": 2, "kv_heads": 2}),
    "experts_divide": lambda: fixed((3, 2), ep=3, global_batch=12),
    "expert_ffn_divides": lambda: fixed((3, 2), etp=3, global_batch=12),
    "fixed_all_to_all_only": lambda: with_fabric(fixed(ep=2), variable_all_to_all=False),
    "hbm": lambda: fixed(hbm_mb=20),
    "host_memory": lambda: with_device(fixed(offload=["optimizer"]), host_memory_bytes=1e6),
    "nvme_capacity": lambda: fixed(offload=["optimizer+nvme"], nvme_mb=1),
    "megatron_interleave": lambda: fixed(framework="megatron", schedule=["interleaved"], pp=2, dp=1, global_batch=3),
    "megatron_expert_overlap": lambda: fixed(
        framework="megatron", recompute=["full"], overlap={"expert_all_to_all": True}
    ),
    "megatron_sequence_parallel": lambda: fixed(framework="megatron", sequence_parallel=False, tp=2),
    "megatron_mla_cp": lambda: fixed(
        framework="megatron", cp_kind=["hybrid"], cp=2, model={"attention": "mla", "mla": MLA}
    ),
    "megatron_zero": lambda: fixed(framework="megatron", zero=[2], pp=2),
    "megatron_schedule": lambda: fixed(framework="megatron", schedule=["zb-h1"], pp=2),
    "megatron_offload_activations": lambda: fixed(framework="megatron", offload=["activations"], pp=2),
    "megatron_optimizer_instances": lambda: fixed(framework="megatron", ep=4, shard_replicas=2),
    "megatron_kv_heads": lambda: fixed(framework="megatron@0.15", tp=4, model={"kv_heads": 2}),
    "megatron_even_stages": lambda: fixed(framework="megatron@0.8", pp=2, model={"layers": 5}),
    "megatron_even_chunks": lambda: fixed(
        framework="megatron@0.10", schedule=["interleaved"], vpp=[2], pp=2, dp=1, global_batch=4, model={"layers": 6}
    ),
    "megatron_latent_attention": lambda: fixed(framework="megatron@0.9", model={"attention": "mla", "mla": MLA}),
    "megatron_latent_tp": lambda: fixed(framework="megatron@0.10", tp=2, model={"attention": "mla", "mla": MLA}),
    "megatron_offload_optimizer": lambda: fixed(framework="megatron@0.10", offload=["optimizer"]),
    "fsdp2_zero": lambda: fixed(framework="fsdp2", zero=[1], dp=4),
    "fsdp2_etp": lambda: fixed(framework="fsdp2", zero=[3], etp=2),
    "fsdp2_interleave": lambda: fixed(
        framework="fsdp2", zero=[3], schedule=["interleaved"], pp=2, dp=1, global_batch=5
    ),
    "fsdp2_interleave_multiple": lambda: fixed(
        framework="fsdp2@2.4", zero=[3], schedule=["interleaved"], pp=2, dp=1, global_batch=3
    ),
    "mindspeed_schedule": lambda: fixed(framework="mindspeed", schedule=["zb-h1"], pp=2),
    "mindspeed_dualpipe_tied": lambda: fixed(
        framework="mindspeed", schedule=["dualpipe-v"], pp=2, global_batch=16, model={"tied_embeddings": True}
    ),
    "mindspeed_cp_kind": lambda: fixed(framework="mindspeed", cp=2, cp_kind=["all-gather"]),
    "torchtitan_kv_heads": lambda: fixed(framework="torchtitan", tp=4, model={"kv_heads": 2}),
    "torchtitan_etp": lambda: fixed(framework="torchtitan", etp=2),
    "torchtitan_tied": lambda: fixed(framework="torchtitan", pp=2, model={"tied_embeddings": True}),
    "torchtitan_interleave": lambda: fixed(
        framework="torchtitan", schedule=["interleaved"], pp=2, dp=1, global_batch=5
    ),
    "deepspeed_etp": lambda: fixed(framework="deepspeed", etp=2),
    "deepspeed_cp": lambda: fixed(framework="deepspeed", cp=2),
    "deepspeed_dispatcher": lambda: fixed(framework="deepspeed", ep=2, dispatcher=["all-gather"]),
}
PATCHED = {
    name: (lambda name=name: with_framework(INSTANCES[name]()))
    for name in list(INSTANCES)
    if name.startswith("megatron") and name not in REPLACED
}
INSTANCES |= {name.replace("megatron", "mindspeed"): instance for name, instance in PATCHED.items()}
OWN = {
    "exposed": lambda: tiny_facts(hbm_mb=1e3, exposed_limit=1e-6, constraints={"fix": {"ep": 4}}, **PLAIN),
    "exposed_ep": lambda: tiny_facts(
        hbm_mb=1e3, exposed_limit_by_class={"ep": 1e-6}, constraints={"fix": {"ep": 4}}, **PLAIN
    ),
    "tp_inside_board": lambda: fixed(placement={"tp": "inside"}, tp=4),
    "user_fix_tp": lambda: fixed(tp=16),
    "user_allow_tp": lambda: tiny_facts(constraints={"allow": {"tp": [16, 32]}}, **PLAIN),
    "user_at_most_dp": lambda: tiny_facts(
        hbm_mb=1e3, constraints={"at_most": {"dp": 1, "tp": 1, "cp": 1, "pp": 1}}, **PLAIN
    ),
    "user_at_least_pp": lambda: tiny_facts(constraints={"at_least": {"pp": 8}}, **PLAIN),
}
STRUCTURAL = {"schedule_takes_vpp"}
"""Candidates are made so that they keep it; only `check` meets it (see test_rules.py)."""


def test_every_relation_has_an_instance():
    listed = [relation.name for relation in (*ALL, *(r for rules in BY_NAME.values() for r in rules))]
    assert len(listed) == len(set(listed))
    assert set(INSTANCES) == set(listed) - STRUCTURAL


@pytest.mark.parametrize("name", [*INSTANCES, *OWN])
def test_a_relation_alone_excludes_everything(name):
    facts = {**INSTANCES, **OWN}[name]()
    oracle = judged(facts)
    # Without a layer per chunk there is no memory and no time to judge.
    names = oracle.alone if name == "layers_fill_stages" else oracle.names
    assert not oracle.satisfying(names).any()
    assert oracle.satisfying([other for other in names if other != name]).any()
    assert not search(problem_of(facts), 1).top


def test_two_relations_of_one_name_are_refused(monkeypatch):
    monkeypatch.setitem(RULES, "megatron", (*RULES["megatron"], FrameworkRule(ALL[0])))
    with pytest.raises(ValueError, match="share a name: batch_divides"):
        relations_of(tiny_facts(framework="megatron"))
