"""Random small problems for differential tests: models, fabrics and runs that a pair of cores can enumerate."""

from dataclasses import replace

from hypothesis import strategies as st

from mapsearch.costs.views import Facts
from mapsearch.inventories.base import validate
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.solver.problem import problem_of
from mapsearch.topologies.core import Tree, regular_cores
from mapsearch.topologies.fabric import Device, Fabric, Level

CLASSES = ("tp", "cp", "ep", "dp", "pp")
SHAPES = ((2, 2), (4, 2), (2, 4), (8, 2), (4, 4), (2, 2, 2), (2, 2, 4), (3, 2), (6, 2))
TINY_SHAPES = ((2,), (3,), (4,), (6,), (8,), (2, 2), (2, 2), (3, 2), (4, 2), (2, 4), (2, 2, 2))
"""Clusters whose mappings loops can go through one by one."""
OVERLAPS = ("grad_reduce", "tp", "cp", "pp", "shared_expert")
SEARCHED_OVERLAPS = ("param_gather", "expert_all_to_all")


@st.composite
def models(draw):
    layers = draw(st.integers(2, 6))
    heads = draw(st.sampled_from([2, 4, 8]))
    shape = {
        "name": "tiny",
        "layers": layers,
        "hidden": 64 * heads,
        "heads": heads,
        "kv_heads": draw(st.sampled_from([heads, heads // 2])),
        "head_dim": 64,
        "vocab": draw(st.sampled_from([1000, 4096])),
        "ffn": 256 * draw(st.integers(1, 8)),
        "dense_first": 0,
    }
    if draw(st.integers(0, 3)):
        experts = draw(st.sampled_from([2, 4, 8]))
        moe = {"experts": experts, "top_k": draw(st.integers(1, 2)), "expert_ffn": 128 * draw(st.integers(1, 8))}
        moe["shared_ffn"] = draw(st.sampled_from([0, 256, 1024]))
        shape |= {"moe": moe, "dense_first": draw(st.integers(0, 1)), "mtp_layers": draw(st.sampled_from([0, 0, 1]))}
    return validate(Model, shape, file="tiny model")


@st.composite
def fabrics(draw, hbm=(2e8, 4e7, 1e8, 1e10), shapes=SHAPES):
    sizes = draw(st.sampled_from(shapes))
    speeds = [draw(st.sampled_from([1e9, 4e9, 1e10, 1e11])) for _ in sizes]
    if draw(st.integers(0, 2)) == 0:
        speeds = [speeds[0]] * len(sizes)  # equal levels: placements tie
    levels = tuple(
        Level(
            f"l{number}",
            draw(st.sampled_from(["switch", "full_mesh", "ring"])),
            size,
            speed,
            draw(st.sampled_from([0.0, 1e-6, 2e-5])),
            high_bandwidth=number == 0,
        )
        for number, (size, speed) in enumerate(zip(sizes, speeds, strict=True))
    )
    away = {"host_memory_bytes": 1e9, "host_bytes_per_s": 2e10, "nvme_bytes": 4e7, "nvme_bytes_per_s": 5e9}
    device = Device("d", draw(st.sampled_from(hbm)), 1e12, {"bf16": 1e13, "fp8": 2e13, "fp4": 4e13}, **away)
    return Fabric("tiny fabric", device, levels, variable_all_to_all=draw(st.booleans()))


@st.composite
def with_hole(draw, fabric):
    """The fabric without one device, as its regular parts."""
    dead = tuple(draw(st.integers(0, level.size - 1)) for level in reversed(fabric.levels))
    whole = tuple(level.kind == "ring" for level in fabric.levels)
    cores = regular_cores(Tree(fabric.fan_outs, broken=frozenset([dead]), whole=whole))
    return replace(fabric, cores=tuple(core.fan_outs for core in cores)) if cores[0].fan_outs else fabric


@st.composite
def profiles(draw):
    names = ("gemm", "grouped_gemm", "attention_forward", "attention_backward")
    names += ("all_reduce", "all_gather", "all_to_all", "point_to_point")
    data = {name: {"peak": draw(st.sampled_from([0.5, 0.8, 1.0]))} for name in names}
    data |= {"name": "tiny profile", "memory_bandwidth": 0.8, "runtime_bytes": "0 B", "communicator_bytes": "10 kB"}
    data["overlap_slowdown"] = draw(st.sampled_from([1.0, 0.7]))
    data["tp_overlap"] = draw(st.sampled_from([0.0, 0.4]))
    data["fp8_quantise_passes"] = data["fp4_quantise_passes"] = draw(st.sampled_from([0.0, 2.0]))
    data["fp4_share"] = draw(st.sampled_from([0.6, 1.0]))
    data["kernel_launch"] = draw(st.sampled_from(["0 s", "5 us"]))
    data["kernels_per_layer"] = 10.0
    data["host_launch"] = draw(st.sampled_from(["0 s", "0 s", "1 us", "20 us"]))
    data["moe_kernels"] = 5.0
    return validate(Profile, data, file="tiny profile")


def _some(draw, values, most=2):
    return draw(st.lists(st.sampled_from(values), min_size=1, max_size=most, unique=True))


@st.composite
def runs(draw):
    data = {
        "name": "tiny run",
        "sequence_length": draw(st.sampled_from([256, 512, 1024])),
        "global_batch": draw(st.sampled_from([4, 8, 16, 12])),
        "framework": draw(st.sampled_from(["megatron", "none", "none"])),
        "reserve": 0.0,
        "precision": draw(st.sampled_from(["bf16", "bf16", "mxfp8", "nvfp4"])),
        "vocabulary": draw(st.sampled_from(["last", "last", "redistributed", "split-1", "split-2"])),
        "half_precision_layers": draw(st.sampled_from([0, 0, 1])),
        "micro_batch": _some(draw, [1, 2, 4]),
        "vpp": _some(draw, [1, 2, 3]),
        "schedule": _some(draw, ["1f1b", "interleaved", "zb-h1", "gpipe", "zb-v", "zb-2p"]),
        "recompute": _some(draw, ["none", "full", "core-attention"], 1 + draw(st.integers(0, 1))),
        "zero": _some(draw, [0, 1, 2, 3]),
        "offload": _some(draw, ["none", "optimizer", "optimizer+nvme"]),
        "cp_kind": _some(draw, ["ring", "all-gather", "ulysses"]),
        "dispatcher": _some(draw, ["all-to-all", "fixed-all-to-all", "all-gather", "deduplicated"]),
        "graphs": draw(st.sampled_from([[], [], ["router"], ["attention", "router"], ["all"]])),
        "shard_replicas": draw(st.sampled_from([1, 1, 2, 4])),
        "data_parallel_unit": draw(st.sampled_from(["stage", "layer", "tensor"])),
        "overlap": {name: draw(st.booleans()) for name in OVERLAPS}
        | {name: _some(draw, [True, False], draw(st.sampled_from([1, 1, 2]))) for name in SEARCHED_OVERLAPS},
    }
    if draw(st.integers(0, 3)) == 0:
        skew = st.sampled_from([1.0, 1.3, 2.5])
        data["routing"] = {"by_ranks": {n: {"rank_skew": draw(skew), "pair_skew": draw(skew)} for n in (1, 2, 4, 8)}}
    if draw(st.integers(0, 2)) == 0:
        data["exposed_limit"] = draw(st.sampled_from([0.9, 0.5, 0.3, 0.1]))
    if draw(st.integers(0, 2)) == 0:
        data["exposed_limit_by_class"] = {draw(st.sampled_from(CLASSES)): draw(st.sampled_from([0.3, 0.1, 0.02]))}
    wish = draw(st.sampled_from(["", "", "fix", "allow", "at_most", "at_least"]))
    axis = draw(st.sampled_from(["tp", "pp", "ep", "dp", "cp"]))
    if wish == "fix":
        data["constraints"] = {"fix": {axis: draw(st.sampled_from([1, 2]))}}
    elif wish == "allow":
        data["constraints"] = {"allow": {axis: [1, 4]}}
    elif wish:
        data["constraints"] = {wish: {axis: 2}}
    return validate(Run, data, file="tiny run")


@st.composite
def problems(draw, shapes=SHAPES):
    return problem_of(Facts(draw(models()), draw(runs()), draw(fabrics(shapes=shapes)), draw(profiles())))
