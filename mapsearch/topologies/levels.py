"""The levels form as a fabric: straight from the numbers, without building a graph.

Contents: fabric_of_levels, regular_part, level_of, resized, left_out, unit_name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mapsearch.errors import InputError
from mapsearch.topologies.core import Core, Path, Tree, regular_core
from mapsearch.topologies.fabric import Fabric, Level
from mapsearch.topologies.spec import LevelSpec, Topology, unit_index, unit_words

NAMED = 4
"""Units that a note names one by one."""


def level_of(spec: LevelSpec) -> Level:
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
    )


def resized(level: Level, size: int) -> Level:
    """The level with some of its units unused: in a full mesh the links to them are lost bandwidth."""
    if level.kind == "full_mesh" and 1 < size < level.size:
        share = (size - 1) / (level.size - 1)
        return replace(level, size=size, bytes_per_s=level.bytes_per_s * share)
    return replace(level, size=size)


def fabric_of_levels(topology: Topology) -> Fabric:
    """The fabric of a topology in the levels form. Raises InputError when nothing regular is left of it."""
    sources = dict(topology.sources)
    for spec in topology.levels:
        sources |= {f"{spec.name}.{field}": source for field, source in spec.sources.items()}
    levels = tuple(level_of(spec) for spec in topology.levels)
    notes = topology.warnings()
    if topology.down:
        core = regular_part(topology)
        levels = tuple(resized(level, size) for level, size in zip(levels, core.fan_outs, strict=True))
        words = unit_words([spec.name for spec in topology.levels])
        notes += left_out(core, words, topology.device_count)
    return Fabric(
        name=topology.name,
        device=topology.device.device(),
        levels=levels,
        variable_all_to_all=topology.all_to_all == "variable",
        sources=sources,
        notes=tuple(notes),
    )


def regular_part(topology: Topology) -> Core:
    """What is left when units are down. Raises InputError when nothing regular is."""
    tree = Tree(
        sizes=tuple(level.size for level in topology.levels),
        broken=frozenset(unit_index(str(item), topology.levels) for item in topology.down),
        whole=tuple(level.kind in ("ring", "torus") for level in topology.levels),
    )
    core = regular_core(tree)
    if not core.fan_outs:
        raise InputError(
            "leaves no regular cluster (a ring or torus is used whole or not at all); lower the size of the level, "
            "or describe what is left as nodes and links",
            file=topology.name,
            field="down",
        )
    return core


def left_out(core: Core, words: Sequence[str], built: int) -> list[str]:
    """One sentence on what the regular core leaves out, or nothing. `words`: unit names, outermost first."""
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
    shape = " x ".join(str(size) for size in reversed(core.fan_outs))
    parts = " and ".join(part for part in (shown, ", ".join(spare)) if part)
    return [f"uses {core.devices:,} of {built:,} devices as {shape} so that fan-outs are equal; left out: {parts}"]


def unit_name(path: Path, words: Sequence[str]) -> str:
    """The name of a unit, such as `rack3/board2`."""
    return "/".join(f"{word}{index}" for word, index in zip(words, path, strict=False)) or "cluster"
