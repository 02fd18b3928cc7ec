"""One cluster, and the list of clusters, as data and as a screenful.

Contents: topology_data, topology_lines, list_lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from mapsearch.reports import human
from mapsearch.reports.layout import Column, flowed, grid, grid_width, section
from mapsearch.solver.cores import Taken, first_names, taken_units
from mapsearch.topologies.fabric import Fabric, Level

SCHEMA = "mapsearch.topology/1"


def topology_data(whole: Fabric) -> dict[str, Any]:
    """Plain data of a fabric, in SI units, for JSON and YAML; of an irregular one its regular parts as well."""
    fabric = whole.regular
    irregular: dict[str, Any] = {}
    if whole.cores:
        irregular["cores"] = [
            {
                "units": dict(zip(whole.level_names, core, strict=True)),
                "devices": math.prod(core),
                "spares": taken.names(taken.spares),
                "stranded": taken.names(taken.stranded),
                "stranded_devices": taken.working(taken.stranded),
            }
            for core, taken in _cores(whole)
        ]
    if whole.alternatives:
        irregular["reading"] = whole.reading
        irregular["alternatives"] = [{"reading": one.reading, **topology_data(one)} for one in whole.alternatives]
    return {
        "schema": SCHEMA,
        "name": fabric.name,
        "devices": fabric.devices,
        "all_to_all": "variable" if fabric.variable_all_to_all else "fixed",
        "device": asdict(fabric.device),
        "levels": [{**asdict(level), "dims": list(level.dims)} for level in fabric.levels],
        "sources": dict(fabric.sources),
        "notes": list(fabric.notes),
        **irregular,
    }


def _cores(fabric: Fabric) -> list[tuple[tuple[int, ...], Taken]]:
    """The regular parts of an irregular fabric, and the units that each takes."""
    return [(core, taken_units(fabric.site, core)) for core in fabric.cores if fabric.site is not None]


def topology_lines(whole: Fabric, *, width: int) -> list[Text]:
    """A fabric as styled lines: its tiers as a tree, its device, its totals, and what to look at.

    Of an irregular one these are of its largest regular part, and the others stand below.
    """
    fabric = whole.regular
    shape = " × ".join(str(size) for size in reversed(fabric.fan_outs))
    head = flowed(f"{fabric.name}: {fabric.devices:,} × {fabric.device.name} as {shape}", width=width)
    head[0].stylize("bold", 0, len(fabric.name))
    kind = "any sizes, any subgroup" if fabric.variable_all_to_all else "whole group only, one size for all"
    lines = [*head, *flowed(f"all-to-all: {kind}{_source(fabric.sources, 'all_to_all')}", width=width, style="dim")]
    for note in fabric.notes:
        lines += flowed(f"! {note}", width=width, style="yellow")
    title = "Levels, outermost first; bandwidth per device and direction"
    lines += section(title, _tree(fabric, width), width=width)
    lines += section(
        "Regular parts: a mapping uses one of them, or fewer of its units", _parts(whole, width), width=width
    )
    lines += section("Other ways to read it: a search takes the fastest", _readings(whole, width), width=width)
    lines += section("Device", _device(fabric, width), width=width)
    return lines + section("All devices together", _totals(fabric, width), width=width)


def _parts(fabric: Fabric, width: int) -> list[Text]:
    lines = []
    for core, taken in _cores(fabric):
        shape = " × ".join(str(size) for size in reversed(core))
        text = f"{shape}: {math.prod(core):,} devices"
        for word, units in (("spare", taken.spares), ("stranded", taken.stranded)):
            if units:
                text += f"; {word}: {first_names(taken.names(units))} ({taken.working(units):,} devices)"
        lines += flowed(text, indent=2, width=width)
    return lines


def _readings(fabric: Fabric, width: int) -> list[Text]:
    lines = []
    for one in fabric.alternatives:
        rates = ", ".join(f"{level.name} {rate(level.bytes_per_s)}" for level in reversed(one.levels))
        lines += flowed(f"{one.reading}: {one.devices:,} devices, {rates}", indent=2, width=width)
    return lines


def _source(sources: dict[str, str], *fields: str) -> str:
    said = dict.fromkeys(sources[field].split(":")[0] for field in fields if field in sources)
    return f" ({', '.join(said)})" if said else ""


def _tree(fabric: Fabric, width: int) -> list[Text]:
    levels = list(reversed(fabric.levels))
    below = [*(level.name for level in levels[1:]), "device"]
    inside = [math.prod(fabric.fan_outs[: len(levels) - place]) for place in range(len(levels))]
    domain = {level.name for level in fabric.levels[: fabric.domain_levels]}
    columns = [
        Column(
            "level", [f"{'  ' * (i - 1)}{'└ ' if i else ''}{level.name}" for i, level in enumerate(levels)], left=True
        ),
        Column("fan-out", [_fan_out(level, word) for level, word in zip(levels, below, strict=True)], left=True),
        Column("devices", [f"{number:,}" for number in inside]),
        Column("bandwidth", [rate(level.bytes_per_s) for level in levels]),
        Column("latency", [human.seconds(level.latency_s) for level in levels]),
        Column("kind", [_kind(level) for level in levels], left=True),
        Column("domain", ["high" if level.name in domain else "" for level in levels], left=True),
    ]
    said = [_level_source(fabric, level) for level in levels]
    wide = [*columns, Column("source", said, left=True, style="dim")]
    if grid_width(wide) + 2 <= width or not any(said):
        return grid(wide if any(said) else columns, indent=2)
    marks = "; ".join(f"{level.name} {mark}" for level, mark in zip(levels, said, strict=True) if mark)
    return [*grid(columns, indent=2), *flowed(f"sources: {marks}", indent=2, width=width, style="dim")]


def _fan_out(level: Level, word: str) -> str:
    count = f"{' × '.join(map(str, level.dims))}" if level.dims else f"{level.size:,}"
    return f"{count} {_plural(word, level.size)}"


def _plural(word: str, count: int) -> str:
    if count == 1:
        return word
    if word == "leaf":
        return "leaves"
    return f"{word}es" if word.endswith(("s", "x", "ch")) else f"{word}s"


def _kind(level: Level) -> str:
    return level.kind.replace("_", " ") + (" +reduce" if level.in_network_reduction else "")


def _level_source(fabric: Fabric, level: Level) -> str:
    return _source(fabric.sources, *(f"{level.name}.{field}" for field in ("bandwidth", "latency"))).strip(" ()")


def _device(fabric: Fabric, width: int) -> list[Text]:
    device = fabric.device
    rows = [
        ("memory", f"{human.amount(device.hbm_bytes)} at {rate(device.hbm_bytes_per_s)}", ("hbm", "hbm_bandwidth")),
        ("dense peak", ", ".join(f"{name} {_flops(peak)}" for name, peak in device.peak_flops.items()), ("peak",)),
    ]
    if device.host_memory_bytes or device.host_bytes_per_s:
        host = f"{human.amount(device.host_memory_bytes)} at {rate(device.host_bytes_per_s)} one way"
        rows.append(("host memory", host, ("host_memory", "host_bandwidth")))
    if device.nvme_bytes or device.nvme_bytes_per_s:
        nvme = f"{human.amount(device.nvme_bytes)} at {rate(device.nvme_bytes_per_s)} one way"
        rows.append(("NVMe", nvme, ("nvme", "nvme_bandwidth")))
    left = max(len(name) for name, _, _ in rows) + 4
    return [
        line
        for name, text, fields in rows
        for line in flowed(
            f"{name}:{' ' * (left - len(name) - 3)}{text}{_source(device.sources, *fields)}", indent=2, width=width
        )
    ]


def _totals(fabric: Fabric, width: int) -> list[Text]:
    count, device = fabric.devices, fabric.device
    peaks = ", ".join(f"{name} {_flops(count * peak)}" for name, peak in device.peak_flops.items())
    lines = flowed(f"{human.amount(count * device.hbm_bytes)} of memory; {peaks}", indent=2, width=width)
    if fabric.levels and count > 1:
        outer = fabric.levels[-1]
        lines.append(Text(f"  {rate(count * outer.bytes_per_s)} across the outermost level, {outer.name}, one way"))
    return lines


def rate(bytes_per_s: float) -> str:
    """A bandwidth: `12.5 GB/s`."""
    return f"{human.amount(bytes_per_s)}/s"


def _flops(flops: float) -> str:
    return human.amount(flops).removesuffix("B") + "FLOP/s"


def list_lines(fabrics: Sequence[Fabric], width: int) -> list[Text]:
    """One line per cluster."""

    def peak(fabric: Fabric, name: str) -> str:
        value = fabric.device.peak_flops.get(name)
        return f"{value / 1e12:,.0f}" if value else "-"

    columns = [
        Column("name", [fabric.name for fabric in fabrics], left=True, style="bold"),
        Column("devices", [f"{fabric.devices:,}" for fabric in fabrics]),
        Column("levels", [" × ".join(str(n) for n in reversed(fabric.fan_outs)) for fabric in fabrics], left=True),
        Column("GB/s, outermost first",
               [" / ".join(f"{lv.bytes_per_s / 1e9:,.4g}" for lv in reversed(fabric.levels)) for fabric in fabrics],
               left=True),
        Column("memory", [human.amount(fabric.device.hbm_bytes) for fabric in fabrics]),
        Column("bf16", [peak(fabric, "bf16") for fabric in fabrics]),
        Column("fp8", [peak(fabric, "fp8") for fabric in fabrics]),
    ]  # fmt: skip
    named = [*columns, Column("device", [fabric.device.name for fabric in fabrics], left=True)]
    lines = grid(named if grid_width(named) <= width else columns)
    return [*lines, *flowed("bandwidth per device and direction; peaks in TFLOP/s, dense", width=width, style="dim")]
