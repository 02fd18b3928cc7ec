"""The levels form as a fabric: straight from the numbers, without building a graph.

Contents: Attachment, attachments, with_ports, level_of, fabric_of_levels, left_out, unit_name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from mapsearch.errors import InputError, listed
from mapsearch.topologies.core import Core, Path, Site, Tree, regular_cores
from mapsearch.topologies.fabric import Fabric, Level, resized
from mapsearch.topologies.spec import LevelSpec, Topology, unit_index, unit_words

NAMED = 4
"""Units that a note names one by one."""


Attachment = Literal["shared", "device", "nic"]
"""How a tier reaches devices: through the switches of a tier inside, by links at devices, or by NICs at them."""


def attachments(levels: Sequence[LevelSpec]) -> list[Attachment]:
    """How each tier of the levels form is attached, innermost first.

    As it says (`ports`); else NICs stand at the edge of the high-bandwidth domain, and wherever the way through the
    switches inside would be slower than the tier is said to be.
    """
    found: list[Attachment] = []
    port: Attachment = "device"
    port_latency_s, port_bytes_per_s, domain = 0.0, math.inf, False
    for level in levels:
        too_slow = 2.0 * port_latency_s > level.latency or port_bytes_per_s < level.bytes_per_s
        if level.size == 1:
            found.append("shared")  # nothing crosses this tier
            continue
        edge = (domain and not level.high_bandwidth) or (port != "device" and too_slow)
        if (level.ports == "own" and port != "device") or (edge and level.ports != "shared"):
            found.append("nic")
            port, port_latency_s, port_bytes_per_s = "nic", 0.0, level.bytes_per_s
        else:
            found.append("device" if port == "device" else "shared")
        if level.kind == "switch":
            port, port_latency_s, port_bytes_per_s = "shared", level.latency / 2.0, level.bytes_per_s
        domain = level.high_bandwidth
    return found


def with_ports(specs: Sequence[LevelSpec], own: Sequence[bool]) -> list[LevelSpec]:
    """The tiers, each with its `ports` written down where it would not be as in `own` without."""
    found: list[LevelSpec] = []
    for spec, wanted in zip(specs, own, strict=True):
        told = spec.model_copy(update={"ports": "own" if wanted else "shared"})
        as_wanted = [(attachments([*found, each])[-1] != "shared") == wanted for each in (spec, told)]
        found.append(told if as_wanted == [False, True] else spec)
    return found


def level_of(spec: LevelSpec, attachment: Attachment = "shared") -> Level:
    """One level in SI units."""
    return Level(
        name=spec.name,
        kind=spec.kind,
        size=spec.size,
        bytes_per_s=spec.bytes_per_s,
        latency_s=spec.latency,
        high_bandwidth=spec.high_bandwidth,
        dims=tuple(spec.dims),
        in_network_reduction=spec.in_network_reduction,
        own_ports=attachment != "shared",
    )


def fabric_of_levels(topology: Topology) -> Fabric:
    """The fabric of a topology in the levels form. Raises InputError when nothing regular is left of it."""
    sources = dict(topology.sources)
    for spec in topology.levels:
        sources |= {f"{spec.name}.{field}": source for field, source in spec.sources.items()}
    levels = tuple(map(level_of, topology.levels, attachments(topology.levels)))
    notes = topology.warnings()
    fabric = Fabric(
        name=topology.name,
        device=topology.device.device(),
        levels=levels,
        variable_all_to_all=topology.all_to_all == "variable",
        sources=sources,
        notes=tuple(notes),
    )
    return _irregular(topology, fabric) if topology.down else fabric


def _irregular(topology: Topology, fabric: Fabric) -> Fabric:
    """The fabric without what is down: its regular parts, and the most units that one of them has of each level."""
    tree = Tree(
        sizes=fabric.fan_outs,
        broken=frozenset(unit_index(str(item), topology.levels) for item in topology.down),
        whole=tuple(level.kind in ("ring", "torus") for level in fabric.levels),
    )
    cores = regular_cores(tree)
    if not cores[0].fan_outs:
        raise InputError(
            "leaves no regular cluster (a ring or torus is used whole or not at all); lower the size of the level, "
            "or describe what is left as nodes and links",
            file=topology.name,
            field="down",
        )
    words = unit_words([spec.name for spec in topology.levels])
    most = [max(sizes) for sizes in zip(*(core.fan_outs for core in cores), strict=True)]
    levels = tuple(resized(level, size) for level, size in zip(fabric.levels, most, strict=True))
    notes = [*fabric.notes, *left_out(cores, words, topology.device_count)]
    site = Site(tree, tuple(range(1, tree.depth + 1)), lambda path: unit_name(path, words))
    offered = tuple(core.fan_outs for core in cores)
    return replace(fabric, levels=levels, notes=tuple(notes), cores=offered, site=site)


def left_out(cores: Sequence[Core], words: Sequence[str], built: int) -> list[str]:
    """One sentence on the regular parts and what the largest leaves out, or nothing. `words`: outermost first."""
    core = cores[0]
    missing = built - core.devices
    if not missing:
        return []
    names = [unit_name(path, words) for path in core.lost]
    shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED:,} more" if len(names) > NAMED else "")
    inner_first = [*reversed(words)]
    spare = [
        f"{count} {inner_first[tier]}{'s' if count > 1 else ''} of each full {(*inner_first[1:], 'cluster')[tier]}"
        for tier, count in enumerate(core.spare)
        if count
    ]
    parts = " and ".join(part for part in (shown, ", ".join(spare)) if part)
    return [
        f"uses at most {core.devices:,} of {built:,} devices as {shape_words(core.fan_outs)} so that fan-outs are "
        f"equal; left out: {parts}{other_cores(cores)}"
    ]


def other_cores(cores: Sequence[Core]) -> str:
    """The regular parts that a search may use in the place of the largest, as the end of a sentence."""
    shapes = [f"{shape_words(core.fan_outs)} ({core.devices:,})" for core in cores[1:]]
    shown = [*shapes[:NAMED], *([f"{len(shapes) - NAMED:,} more"] if len(shapes) > NAMED else [])]
    return f"; a search may use {listed(shown)} instead, or fewer units" if shapes else "; a search may use fewer units"


def shape_words(fan_outs: Sequence[int]) -> str:
    """Fan-outs as `61 x 8 x 8`, outermost first."""
    return " x ".join(str(size) for size in reversed(fan_outs))


def unit_name(path: Path, words: Sequence[str]) -> str:
    """The name of a unit, such as `rack3/board2`."""
    return "/".join(f"{word}{index}" for word, index in zip(words, path, strict=False)) or "cluster"
