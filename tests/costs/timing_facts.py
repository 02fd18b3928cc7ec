"""Small facts for the tests of times: an ideal profile, and fabrics with round numbers."""

from mapsearch.inventories.base import validate
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.topologies.fabric import Device, Fabric, Level


def profile(**changes):
    """Every kernel and link at its peak, nothing to launch; `changes` name fields."""
    ideal = {"peak": 1.0}
    names = ("gemm", "grouped_gemm", "attention_forward", "attention_backward")
    names += ("all_reduce", "all_gather", "all_to_all", "point_to_point")
    data = {name: dict(ideal) for name in names}
    data |= {"name": "ideal", "memory_bandwidth": 1.0, "runtime_bytes": "0 B", "communicator_bytes": "0 B"}
    return validate(Profile, data | changes, file="ideal")


def level(name, size, gigabytes_per_s, *, us=0.0, kind="switch", **changes):
    return Level(name, kind, size, gigabytes_per_s * 1e9, us * 1e-6, **changes)


def fabric(*levels, **peaks):
    device = Device("d", 80e9, 1e12, peaks or {"bf16": 989.4e12, "fp8": 2 * 989.4e12})
    return Fabric("f", device, levels)


def nodes(count=64, node_gb=450.0, nic_gb=50.0, us=(0.0, 0.0), size=8):
    """Nodes of `size` devices on one switch each, under one network switch."""
    return fabric(level("node", size, node_gb, us=us[0], high_bandwidth=True), level("net", count, nic_gb, us=us[1]))


def e1_model(**changes):
    """The model of vector E1 (FORMULAS 8)."""
    shape = {"name": "E1", "layers": 80, "hidden": 12288, "heads": 96, "kv_heads": 8, "head_dim": 128, "vocab": 163840}
    return validate(Model, {**shape, "moe": {"experts": 384, "top_k": 16, "expert_ffn": 4352}, **changes}, file="E1")


def dsv3_model(**changes):
    """DeepSeek-V3's shape, the second vector."""
    mla = {"q_rank": 1536, "kv_rank": 512, "nope_dim": 128, "rope_dim": 64, "value_dim": 128}
    moe = {"experts": 256, "top_k": 8, "expert_ffn": 2048, "shared_ffn": 2048}
    shape = {"name": "dsv3", "layers": 61, "hidden": 7168, "heads": 128, "kv_heads": 128, "head_dim": 128}
    shape |= {"attention": "mla", "mla": mla, "ffn": 18432, "dense_first": 3, "vocab": 129280, "moe": moe}
    return validate(Model, {**shape, **changes}, file="dsv3")


def run(**changes):
    return validate(Run, {"sequence_length": 4096, "global_batch": 4096, **changes}, file="run")
