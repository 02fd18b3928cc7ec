"""Rules of frameworks and arithmetic on single mappings: golden cases, margins by plain arithmetic, sentences."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import bruteforce
import pytest
from test_flip import INSTANCES, MLA, OWN, SHARED, fixed
from tiny_cases import tiny_facts

from mapsearch.axes import CpKind, Dispatcher, Offload, Recompute, Schedule
from mapsearch.constraints import relations_of
from mapsearch.costs.estimate import layout_trouble, point_of
from mapsearch.costs.placement import rows_of
from mapsearch.inventories.base import validate
from mapsearch.inventories.mapping import Mapping
from mapsearch.solver.problem import problem_of
from mapsearch.solver.ranking import margins

ALONE = ("cell", "attention", "expert")


def judge(relation: str, facts, **mapping):
    """The margin of one relation on one mapping; the expert grid follows the attention grid unless it is given."""
    sizes = {"tp": 1, "cp": 1, "dp": 1, "pp": 1, "etp": 1, "ep": 1} | mapping
    edp = sizes["tp"] * sizes["cp"] * sizes["dp"] // (sizes["etp"] * sizes["ep"])
    if facts.fabric.name == "any":
        size = sizes["tp"] * sizes["cp"] * sizes["dp"] * sizes["pp"]
        facts = replace(facts, fabric=replace(facts.fabric, levels=(replace(facts.fabric.levels[0], size=size),)))
    point = point_of(validate(Mapping, {**sizes, "edp": edp}, file="mapping"), facts)
    [found] = [m for m in margins(point, relations_of(facts), ALONE) if m.relation == relation]
    return found


def large(**changes):
    """A cluster that is cut to the size of the mapping that is judged."""
    facts = fixed(**changes)
    return replace(facts, fabric=replace(facts.fabric, name="any"))


def framework(name, **changes):
    return large(framework=name, **changes)


OVERLAP = {"overlap": {"expert_all_to_all": True}}
MODEL = {"heads": 24, "kv_heads": 4, "ffn": 1536, "layers": 24}
LATENT = {"attention": "mla", "mla": MLA}
GOLDEN = [
    # relation, facts, mapping, whether it holds; conditions of FORMULAS 5.2.
    ("experts_divide", large(), {"dp": 8, "ep": 8}, True),  # M4: E % EP = 0, 8 experts
    ("experts_divide", large(), {"dp": 6, "ep": 6}, False),  # M4
    ("experts_divide", large(model={"moe": {**SHARED, "experts": 256}}), {"dp": 3, "ep": 3}, False),  # M4: 256 on EP3
    ("heads_divide", large(model=MODEL), {"tp": 6}, True),  # M5: n_q % TP = 0, 24 heads
    ("heads_divide", large(), {"tp": 6}, False),  # M5: 8 heads
    ("kv_heads_divide", large(model=MODEL), {"tp": 2}, True),  # M6: n_kv % TP = 0, 4 KV heads
    ("kv_heads_divide", large(model=MODEL), {"tp": 8}, True),  # M6: TP % n_kv = 0, replicated
    ("kv_heads_divide", large(model=MODEL), {"tp": 6}, False),  # M6: neither
    ("torchtitan_kv_heads", framework("torchtitan", model=MODEL), {"tp": 8}, False),  # TT: stricter than M6
    ("torchtitan_kv_heads", framework("torchtitan", model=MODEL), {"tp": 4}, True),
    ("ffn_divides", large(model={"moe": None}), {"tp": 8}, True),  # M8: F % TP, 512
    ("ffn_divides", large(model={"moe": None}), {"tp": 3}, False),
    ("shared_ffn_divides", large(model={"moe": SHARED}), {"tp": 8}, True),  # M8: f_s % TP, 256
    ("shared_ffn_divides", large(model={"moe": SHARED}), {"tp": 3}, False),
    ("expert_ffn_divides", large(), {"dp": 2, "etp": 2}, True),  # M8: f % ETP, 256
    ("expert_ffn_divides", large(), {"dp": 3, "etp": 3}, False),
    ("sequence_divides", large(), {"cp": 4}, True),  # M9: s % (2 CP) = 0, s = 512
    ("sequence_divides", large(), {"cp": 3}, False),
    ("sequence_divides", large(sequence_length=514), {"cp": 2}, False),  # M9: 514 % 4
    ("sequence_divides", large(sequence_length=12), {"cp": 2, "tp": 8}, False),  # M9 with SP: (s / CP) % TP
    ("sequence_divides", large(sequence_length=12, sequence_parallel=False), {"cp": 2, "tp": 8}, True),
    ("megatron_sequence_parallel", framework("megatron", sequence_parallel=False), {"tp": 2}, False),  # M9
    ("megatron_sequence_parallel", framework("megatron"), {"tp": 2}, True),
    ("ulysses_heads_divide", large(), {"tp": 2, "cp": 2, "cp_kind": "ulysses"}, True),  # M10: local heads % CP
    ("ulysses_heads_divide", large(), {"tp": 2, "cp": 8, "cp_kind": "ulysses"}, False),  # M10: 4 local query heads
    ("ulysses_heads_divide", large(), {"tp": 2, "cp": 8, "cp_kind": "ring"}, True),
    ("ulysses_heads_divide", large(), {"tp": 2, "cp": 8, "cp_kind": "hybrid"}, False),  # one level: Ulysses alone
    ("ulysses_heads_divide", large(), {"tp": 2, "cp": 4, "cp_kind": "hybrid"}, True),
    ("megatron_mla_cp", framework("megatron", model=LATENT), {"cp": 2, "cp_kind": "hybrid"}, False),  # M11
    ("megatron_mla_cp", framework("megatron"), {"cp": 2, "cp_kind": "hybrid"}, True),
    ("batch_divides", large(global_batch=48), {"dp": 8, "micro_batch": 2}, True),  # M12: GBS % (b DP)
    ("batch_divides", large(global_batch=48), {"dp": 8, "micro_batch": 4}, False),
    ("batch_divides", large(global_batch=4), {"dp": 8}, False),  # M12: m >= 1
    ("layers_fill_stages", large(model={"layers": 30}), {"pp": 4}, True),  # layers need not divide evenly
    ("layers_fill_stages", large(), {"pp": 8}, False),
    ("schedule_takes_vpp", large(), {"pp": 2, "schedule": "1f1b", "vpp": 2}, False),  # M15
    ("schedule_takes_vpp", large(), {"pp": 1, "schedule": "interleaved", "vpp": 2}, False),  # M15: PP > 1
    ("schedule_takes_vpp", large(), {"pp": 2, "schedule": "interleaved", "vpp": 2}, True),
    ("megatron_schedule", framework("megatron"), {"pp": 2, "schedule": "zb-h1"}, False),  # M15, M16
    ("megatron_schedule", framework("megatron"), {"pp": 1, "schedule": "zb-h1"}, True),  # nothing to schedule
    ("megatron_interleave", framework("megatron"), {"pp": 4, "schedule": "interleaved", "vpp": 2}, True),  # M16: m = 8
    (
        "megatron_interleave",  # M16: m = 6 on PP4, m mod g is 2, below PP
        framework("megatron", global_batch=6),
        {"pp": 4, "schedule": "interleaved", "vpp": 2},
        False,
    ),
    (
        "megatron_interleave",  # M16: PP <= m
        framework("megatron", global_batch=2),
        {"pp": 4, "schedule": "interleaved", "vpp": 2},
        False,
    ),
    (
        "megatron_expert_overlap",
        framework("megatron", **OVERLAP),
        {"dp": 2, "ep": 2, "recompute": "full"},
        False,
    ),  # M17
    ("megatron_expert_overlap", framework("megatron", **OVERLAP), {"dp": 2, "ep": 2, "recompute": "moe"}, False),
    ("megatron_expert_overlap", framework("megatron", **OVERLAP), {"pp": 2, "dp": 2, "ep": 2}, False),  # M17: VPP
    ("megatron_expert_overlap", framework("megatron", **OVERLAP), {"dp": 2, "ep": 2, "recompute": "norm"}, True),
    ("megatron_expert_overlap", framework("megatron"), {"dp": 2, "ep": 2, "recompute": "full"}, True),
    ("megatron_expert_overlap", framework("megatron", model={"moe": None}, **OVERLAP), {"pp": 2}, True),
    ("megatron_offload_activations", framework("megatron"), {"pp": 2, "offload": "activations"}, False),  # M21
    ("megatron_offload_activations", framework("megatron"), {"recompute": "norm", "offload": "activations"}, False),
    ("megatron_offload_activations", framework("megatron"), {"offload": "activations"}, True),
    ("megatron_zero", framework("megatron"), {"pp": 2, "zero": 3}, False),  # M21: FSDP needs PP 1
    ("megatron_zero", framework("megatron"), {"pp": 2, "zero": 1}, True),
    ("torchtitan_etp", framework("torchtitan"), {"dp": 2, "etp": 2}, False),  # TT: no ETP
    ("torchtitan_tied", framework("torchtitan", model={"tied_embeddings": True}), {"pp": 2}, False),  # TT
    ("torchtitan_tied", framework("torchtitan", model={"tied_embeddings": True}), {"pp": 1}, True),
    (
        "torchtitan_interleave",  # PT: m % max(1, m // PP) = 0; m = 7 on PP2 leaves 7 % 3
        framework("torchtitan", global_batch=7),
        {"pp": 2, "schedule": "interleaved", "vpp": 2},
        False,
    ),
    (
        "torchtitan_interleave",  # PT: m < stages only warns
        framework("torchtitan", global_batch=3),
        {"pp": 4, "schedule": "interleaved", "vpp": 2},
        True,
    ),
    ("bidirectional_batch", large(model=MODEL), {"pp": 4, "schedule": "dualpipe-v"}, True),  # PT: m >= 2 PP, m = 8
    ("bidirectional_batch", large(model=MODEL, global_batch=6), {"pp": 4, "schedule": "dualpipe-v"}, False),
    ("bidirectional_batch", large(model=MODEL), {"pp": 3, "schedule": "dualpipe"}, False),  # F3.5: even PP
    ("zero_bubble_batch", large(model=MODEL), {"pp": 4, "schedule": "zb-2p"}, True),  # F3.5: m >= 2 PP, m = 8
    ("zero_bubble_batch", large(model=MODEL, global_batch=7), {"pp": 4, "schedule": "zb-2p"}, False),
    ("zero_bubble_batch", large(global_batch=1), {"schedule": "zb-2p"}, True),
    ("deepspeed_etp", framework("deepspeed"), {"dp": 2, "etp": 2}, False),  # DS: etp must be 1
    ("deepspeed_cp", framework("deepspeed"), {"cp": 2, "cp_kind": "ring"}, False),  # DS: ulysses_sp
    ("deepspeed_cp", framework("deepspeed"), {"cp": 2, "cp_kind": "ulysses"}, True),
    ("deepspeed_dispatcher", framework("deepspeed"), {"dp": 2, "ep": 2, "dispatcher": "all-gather"}, False),
]


@pytest.mark.parametrize(("relation", "facts", "mapping", "holds"), GOLDEN, ids=[str(i) for i in range(len(GOLDEN))])
def test_a_rule_is_what_its_source_says(relation, facts, mapping, holds):
    found = judge(relation, facts, **mapping)
    assert (found.margin >= 0) is holds, found.reason


def broken_by_arithmetic(m: Mapping, facts) -> dict[str, bool]:
    """The rules again, with plain integers, written from FORMULAS 5.2 and 3.5."""
    model, run, moe = facts.model, facts.run, facts.model.moe
    dualpipe = m.schedule in (Schedule.DUALPIPE, Schedule.DUALPIPE_V)
    per_rank = 2 if m.schedule in (Schedule.ZB_V, Schedule.DUALPIPE_V) else m.vpp
    interleaved = m.schedule == Schedule.INTERLEAVED
    whole, rest = divmod(run.global_batch, m.micro_batch * m.dp)
    halves = 2 if m.cp > 1 and m.cp_kind != CpKind.ULYSSES else 1
    pieces = math.lcm(m.cp * halves, m.cp * (m.tp if run.sequence_parallel else 1))
    cuts = [ways for ways in rows_of(m, facts.fabric).by_axis["cp"] if ways > 1]
    degree = {CpKind.ULYSSES: m.cp, CpKind.HYBRID: cuts[0] if cuts else 1}.get(CpKind(m.cp_kind), 1)
    ranks = m.tp * degree
    latent = model.mla is not None
    kv = model.kv_heads
    return {
        "batch_divides": rest != 0,
        "layers_fill_stages": m.pp * per_rank > model.layers,
        "schedule_takes_vpp": (m.vpp < 2 or m.pp < 2) if interleaved else m.vpp > 1,
        "bidirectional_batch": dualpipe
        and (rest != 0 or whole % 2 == 1 or whole < 2 * m.pp or (m.schedule == Schedule.DUALPIPE and m.pp % 2 == 1)),
        "zero_bubble_batch": m.schedule == Schedule.ZB_2P
        and m.pp > 1
        and run.global_batch < 2 * m.pp * m.micro_batch * m.dp,
        "heads_divide": model.heads % m.tp != 0,
        "kv_heads_divide": not latent and kv % m.tp != 0 and m.tp % kv != 0,
        "ffn_divides": model.dense_layers > 0 and model.ffn % m.tp != 0,
        "shared_ffn_divides": moe is not None and moe.shared_ffn % m.tp != 0,
        "sequence_divides": run.sequence_length % pieces != 0,
        "ulysses_heads_divide": degree > 1
        and (model.heads % ranks != 0 or (not latent and kv % ranks != 0 and ranks % kv != 0)),
        "experts_divide": moe is not None and moe.experts % m.ep != 0,
        "expert_ffn_divides": moe is not None and moe.expert_ffn % m.etp != 0,
        "fixed_all_to_all_only": not facts.fabric.variable_all_to_all
        and m.ep > 1
        and m.dispatcher not in (Dispatcher.FIXED_ALL_TO_ALL, Dispatcher.ALL_GATHER),
        "megatron_interleave": interleaved and (rest != 0 or whole < m.pp or whole % m.pp != 0),
        "megatron_expert_overlap": run.overlap.expert_all_to_all
        and moe is not None
        and (bool(m.recompute & (Recompute.FULL | Recompute.MOE)) or (m.pp > 1 and m.vpp == 1)),
        "megatron_sequence_parallel": m.tp > 1 and moe is not None and not run.sequence_parallel,
        "megatron_mla_cp": latent and m.cp > 1 and m.cp_kind == CpKind.HYBRID,
        "megatron_zero": m.pp > 1 and m.zero > 1,
        "megatron_schedule": m.pp > 1 and m.schedule not in (Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED),
        "megatron_offload_activations": bool(m.offload & Offload.ACTIVATIONS) and (m.pp > 1 or m.recompute > 0),
        "megatron_optimizer_instances": m.edp % run.shard_replicas != 0,
        "megatron_kv_heads": not latent and kv % m.tp != 0,
        "megatron_even_stages": model.layers % m.pp != 0,
        "megatron_even_chunks": m.vpp > 1 and model.layers % (m.pp * m.vpp) != 0,
        "megatron_latent_attention": latent,
        "megatron_latent_tp": latent and m.tp > 1,
        "megatron_offload_optimizer": bool(m.offload & Offload.OPTIMIZER),
        "fsdp2_zero": m.zero < 2 and m.tp * m.cp * m.dp > 1,
        "fsdp2_etp": m.etp > 1,
        "fsdp2_interleave": interleaved and (rest != 0 or whole % max(1, whole // m.pp) != 0),
        "fsdp2_interleave_multiple": interleaved and (rest != 0 or whole % m.pp != 0),
        "torchtitan_kv_heads": not latent and kv % m.tp != 0,
        "torchtitan_etp": m.etp > 1,
        "torchtitan_tied": model.tied_embeddings and m.pp > 1,
        "torchtitan_interleave": interleaved and (rest != 0 or whole % max(1, whole // m.pp) != 0),
        "deepspeed_etp": m.etp > 1,
        "deepspeed_cp": m.cp > 1 and m.cp_kind != CpKind.ULYSSES,
        "deepspeed_dispatcher": m.ep > 1 and m.dispatcher not in (Dispatcher.ALL_TO_ALL, Dispatcher.FIXED_ALL_TO_ALL),
    }


CHOICES = {
    "micro_batch": [1, 2],
    "vpp": [1, 2],
    "recompute": ["none", "moe"],
    "zero": [1, 3],
    "offload": ["none"],
    "cp_kind": ["ring", "ulysses", "hybrid"],
    "dispatcher": ["all-to-all", "all-gather"],
    "global_batch": 12,
    "sequence_length": 96,
}
WIDE = {
    "megatron": lambda: tiny_facts(
        (3, 2), framework="megatron", schedule=["interleaved", "zb-h1"], sequence_parallel=False, **OVERLAP, **CHOICES
    ),
    "megatron@0.8": lambda: tiny_facts((3, 2), framework="megatron@0.8", schedule=["interleaved"], **CHOICES),
    "fsdp2": lambda: tiny_facts((3, 2), framework="fsdp2", schedule=["interleaved"], **CHOICES),
    "fsdp2@2.4": lambda: tiny_facts((3, 2), framework="fsdp2@2.4", schedule=["interleaved"], **CHOICES),
    "torchtitan": lambda: tiny_facts(
        (6,),
        framework="torchtitan",
        model={"tied_embeddings": True, "moe": SHARED, "dense_first": 1},
        schedule=["interleaved", "dualpipe"],
        **CHOICES,
    ),
    "deepspeed": lambda: replace_fabric(
        tiny_facts((2, 3), framework="deepspeed", model=LATENT, schedule=["dualpipe-v", "zb-2p", "1f1b"], **CHOICES)
    ),
}


def replace_fabric(facts):
    return replace(facts, fabric=replace(facts.fabric, variable_all_to_all=False))


@pytest.mark.parametrize("name", WIDE)
def test_the_sign_of_a_margin_is_what_plain_arithmetic_says(name):
    facts = WIDE[name]()
    relations = [relation for relation in relations_of(facts) if relation.side != "pair"]
    seen = set()
    for number, mapping in enumerate(bruteforce.mappings(facts)):
        if number % 5:
            continue  # every fifth is enough to see each rule kept and broken
        expected = broken_by_arithmetic(mapping, facts)
        for margin in margins(point_of(mapping, facts), relations, ALONE):
            assert (margin.margin < 0) is expected[margin.relation], (mapping, margin)
            seen.add((margin.relation, margin.margin < 0))
    # The oracle guards itself: rules are seen kept and broken.
    assert sum(broken for _, broken in seen) >= 5 and sum(not broken for _, broken in seen) >= 12


FORBIDDEN = re.compile(
    r"\b(nan|inf|null|cp-?sat|milp|solver|literal|core set|iis|mus|bool|true|false|array)\b|(?-i:None)|\{|\}",
    re.IGNORECASE,
)


def samples():
    """Facts that together meet every relation, with its rule kept, broken and not applicable."""
    return [(name, make()) for name, make in {**INSTANCES, **OWN}.items()]


@pytest.mark.parametrize(("name", "facts"), samples(), ids=[name for name, _ in samples()])
def test_sentences_are_plain_and_true_for_kept_and_broken_rules(name, facts):
    relations = relations_of(facts)
    for relation in relations:
        assert relation.statement, relation.name
        assert not FORBIDDEN.search(relation.told(facts)), relation.told(facts)
    for number, mapping in enumerate(bruteforce.mappings(facts)):
        if number % 7:
            continue
        point = point_of(mapping, facts)
        for margin in margins(point, relations, ALONE if layout_trouble(point) else None):
            text = margin.reason
            assert not FORBIDDEN.search(text), text
            away = text.startswith("does not apply: ")
            assert not (away and margin.margin < 0), text
            assert away or re.search(r"\d", text), text
            if margin.unit == "left over":
                assert (" do not split evenly " in text) == (margin.margin < 0)
            elif margin.unit == "broken rules":
                assert (", but " in text) == (margin.margin < 0)


@pytest.mark.parametrize(
    ("relation", "facts", "mapping", "sentence"),
    [
        ("heads_divide", large(), {"tp": 3}, "8 query heads do not split evenly over TP 3: 2 left over"),
        ("heads_divide", large(), {"tp": 4}, "8 query heads split evenly over TP 4"),
        ("ffn_divides", large(), {"tp": 2}, "does not apply: the model has no dense layers"),
        (
            "batch_divides",
            large(global_batch=4480),
            {"dp": 3},
            "4,480 sequences of the global batch do not split evenly over microbatch x DP = 3: 1 left over",
        ),
        ("bidirectional_batch", large(), {"pp": 2}, "does not apply: the schedule is 1f1b"),
        (
            "layers_fill_stages",
            large(),
            {"pp": 8},
            "each of 8 pipeline chunks (PP 8, 1 per stage) needs a layer; the model has 4",
        ),
        (
            "megatron_zero",
            framework("megatron"),
            {"pp": 2, "zero": 3},
            "Megatron pipelines with ZeRO 0 or 1 only; ZeRO 2 and 3 (Megatron-FSDP) take PP 1, but ZeRO is 3 on PP 2; "
            "zero 0 or 1 would satisfy it",
        ),
        ("user_fix_tp", fixed(tp=4), {"tp": 4}, "you fix tp = 4: here it is 4"),
        ("user_fix_tp", fixed(tp=4), {"tp": 2}, "you fix tp = 4, but here it is 2"),
        (
            "tp_inside_board",
            fixed(placement={"tp": "inside"}),
            {"tp": 4},
            "TP 4 is cut 2 ways beyond one board of 2 devices, but must stay inside",
        ),
        ("tp_inside_board", fixed(placement={"tp": "inside"}), {"tp": 2}, "TP 2 stays inside one board of 2 devices"),
    ],
)
def test_sentences(relation, facts, mapping, sentence):
    assert judge(relation, facts, **mapping).reason == sentence


def test_every_relation_of_a_problem_says_whose_it_is():
    origins = {relation.origin for name, facts in samples() for relation in problem_of(facts).relations}
    assert origins == {
        "physics",
        "topology",
        "placement",
        "user",
        "megatron",
        "torchtitan",
        "deepspeed",
        "fsdp2",
        "mindspeed",
    }
