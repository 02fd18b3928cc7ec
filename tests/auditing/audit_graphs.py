"""Clusters for audits: regular ones as levels, and graphs that their levels do not tell the whole of."""

from __future__ import annotations

from mapsearch.topologies import Topology

DEVICE = {"name": "ASIC", "hbm": "96 GB", "hbm_bandwidth": "2.4 TB/s", "peak": {"bf16": "400 TFLOP/s"}}


def levels(*tiers, shared=(), **changes):
    """From (name, kind, size, GB/s, dims), innermost first; `shared`: tiers reached through the switches inside."""
    written = [
        {
            "name": name, "kind": kind, "size": size, "bandwidth": f"{rate} GB/s", "latency": "1 us",
            "dims": list(dims), "high_bandwidth": place == 0, "ports": "shared" if name in shared else "",
        }
        for place, (name, kind, size, rate, *rest) in enumerate(tiers)
        for dims in [rest[0] if rest else ()]
    ]  # fmt: skip
    return Topology.model_validate({"name": "lab", "device": DEVICE, "levels": written, **changes})


def links(*written, **changes):
    """From (a, b, GB/s); names that start with g are devices, with n NICs, others switches."""
    kinds = {"g": "device", "n": "nic"}
    names = dict.fromkeys(end for a, b, *_ in written for end in (a, b))
    return Topology.model_validate(
        {
            "name": "lab",
            "device": DEVICE,
            "nodes": [{"id": name, "type": kinds.get(name[0], "switch")} for name in names],
            "links": [
                {"a": a, "b": b, "bandwidth": f"{rate} GB/s", "latency": "1 us", "count": (rest or [1])[0]}
                for a, b, rate, *rest in written
            ],
            **changes,
        }
    )


def racks(count, size, inside, across):
    """Racks of devices on one switch, with a NIC for each device on a fabric between racks (GB/s)."""
    written = []
    for rack in range(count):
        for device in range(size):
            name = f"g{rack}.{device}"
            written += [(name, f"rack{rack}", inside), (name, f"n{rack}.{device}", across)]
            written += [(f"n{rack}.{device}", "fabric", across)]
    return links(*written, level_names=["rack", "cluster"], high_bandwidth=f"{inside} GB/s")


def leaf_spine(leaves, size, spines, down, up, slow=()):
    """Leaves of devices under spines; `slow`: rate by (leaf, spine) where it is another."""
    written = [(f"g{leaf}.{device}", f"leaf{leaf}", down) for leaf in range(leaves) for device in range(size)]
    rates = dict(slow)
    written += [
        (f"leaf{leaf}", f"spine{spine}", rates.get((leaf, spine), up))
        for leaf in range(leaves)
        for spine in range(spines)
    ]
    return links(*written, level_names=["leaf", "cluster"], high_bandwidth=f"{down} GB/s")
