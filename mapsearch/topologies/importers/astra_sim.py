"""Network files of ASTRA-sim's analytical backend: one building block per dimension, innermost first.

Contents: FORMAT, BLOCKS, detect, read.

    topology: [ Ring, FullyConnected, Switch ]
    npus_count: [ 2, 8, 4 ]
    bandwidth: [ 200.0, 100.0, 50.0 ]     # of one link, one way, GB/s with 1 GB = 2^30 B
    latency: [ 50.0, 500.0, 2000.0 ]      # of one link, ns

The older JSON form (`topology-name: Hierarchical`, `topologies-per-dim`, `units-count`, `links-count`,
`link-bandwidth`, `link-latency`) says how many links a device has in each dimension.

A level has the bandwidth of a device over all its links in that dimension: two in a ring (one in a ring of two), n - 1
in a full mesh, one to a switch; and a latency from device to device: one link, or two through a switch. What the file
does not say: the device, and which dimensions form the high-bandwidth domain.

Source: ASTRA-sim, "Analytical network: input format" (astra-sim.github.io/astra-network-analytical-docs): units of
bandwidth ("1 GB as 2^30 B") and latency, the three blocks; README of the analytical backend for the JSON form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from mapsearch import documents, units
from mapsearch.errors import InputError, listed, near_miss
from mapsearch.topologies.importers.base import Whole
from mapsearch.topologies.importers.hostlist import short
from mapsearch.topologies.importers.marks import Marks
from mapsearch.topologies.spec import MAX_DEVICES

FORMAT = "astra-sim network"
BLOCKS = {"Ring": "ring", "FullyConnected": "full_mesh", "Switch": "switch"}
BYTES_PER_GB = 2.0**30
"""Source: ASTRA-sim, input format, "Bandwidth"."""
S_PER_NS = 1e-9
MAX_DIMENSIONS = 16
_YAML_SIGN = re.compile(r"^[\"']?npus_count[\"']?[ \t]*:|[{,]\s*\"npus_count\"\s*:", re.MULTILINE)
_JSON_SIGN = re.compile(r"\"topologies-per-dim\"\s*:|\"topology-name\"\s*:")
_IGNORED = ("nic-latency", "router-latency", "hbm-latency", "hbm-bandwidth", "hbm-scale", "dimension-type")


@dataclass(frozen=True)
class _Dimension:
    """One building block."""

    block: str
    size: int
    links: int
    gb_per_s: float
    latency_ns: float


def detect(text: str, name: str) -> bool:
    """A key `npus_count`, or `topologies-per-dim` of the older form."""
    return _YAML_SIGN.search(text) is not None or _JSON_SIGN.search(text) is not None


def read(text: str, *, file: str, repair: bool = False) -> Whole:
    """The levels of a network file. Raises InputError with line and column."""
    data = documents.parse(text, file=file)
    marks = Marks(text, file)
    if not isinstance(data, dict):
        raise marks.fault("holds no keys and values; a network has topology, npus_count, bandwidth and latency", 0)
    if "npus_count" in data or "topology" in data:
        notes: list[str] = []
        dimensions = _present_form(data, marks)
    else:
        dimensions, notes = _older_form(data, marks)
    devices = prod(dimension.size for dimension in dimensions)
    if devices > MAX_DEVICES:
        raise marks.fault(f"has {devices:,} devices; at most {MAX_DEVICES:,} are read", 0)
    notes.append("says no device and no high-bandwidth domain: set high_bandwidth: true on the levels that are of it")
    document = {
        "name": Path(file).stem or "astra-sim",
        "levels": [_level(dimension, place) for place, dimension in enumerate(dimensions, start=1)],
    }
    return Whole(FORMAT, document, tuple(notes))


def _present_form(data: dict[str, Any], marks: Marks) -> list[_Dimension]:
    known = ("topology", "npus_count", "bandwidth", "latency")
    for key in data:
        if key not in known:
            raise marks.fault(
                f"unknown key {short(key)!r}{near_miss(str(key)[:40], known)}; known: {listed(known)}", 0, key
            )
    blocks = _blocks(data, "topology", marks)
    sizes = _sizes(data, "npus_count", len(blocks), marks)
    rates = _numbers(data, "bandwidth", len(blocks), marks, above_zero=True)
    latencies = _numbers(data, "latency", len(blocks), marks)
    return [
        _Dimension(block, size, _links(block, size), rate, latency)
        for block, size, rate, latency in zip(blocks, sizes, rates, latencies, strict=True)
    ]


def _links(block: str, size: int) -> int:
    """Links of one device in a block."""
    return {"Ring": 2 if size > 2 else 1, "FullyConnected": size - 1, "Switch": 1}[block]


def _older_form(data: dict[str, Any], marks: Marks) -> tuple[list[_Dimension], list[str]]:
    name = data.get("topology-name")
    if "topologies-per-dim" not in data:
        what = f"topology-name {short(name)!r} is of a form that says its dimensions by name only"
        raise marks.fault(f"{what}; Hierarchical with topologies-per-dim, or topology and npus_count, is read", 0)
    blocks = _blocks(data, "topologies-per-dim", marks)
    sizes = _sizes(data, "units-count", len(blocks), marks)
    counts = _sizes(data, "links-count", len(blocks), marks)
    rates = _numbers(data, "link-bandwidth", len(blocks), marks, above_zero=True)
    latencies = _numbers(data, "link-latency", len(blocks), marks)
    unread = [key for key in _IGNORED if key in data and any(_nonzero(value) for value in _listed(data[key]))]
    notes = [f"{', '.join(unread)}: not read"] if unread else []
    return [_Dimension(*one) for one in zip(blocks, sizes, counts, rates, latencies, strict=True)], notes


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _nonzero(value: Any) -> bool:
    return isinstance(value, int | float) and value != 0


def _values(data: dict[str, Any], key: str, count: int, marks: Marks) -> list[Any]:
    value = data.get(key)
    if not isinstance(value, list) or not value:
        what = "is missing" if value is None else f"holds {short(value)!r}"
        raise _fault(marks, key, f"{what}; a list with one value per dimension is needed, such as [ 8, 4 ]")
    if len(value) > MAX_DIMENSIONS:
        raise _fault(marks, key, f"has {len(value):,} values; at most {MAX_DIMENSIONS} dimensions are read")
    if count and len(value) != count:
        raise _fault(marks, key, f"has {len(value)} values, but the topology {count} dimensions")
    return value


def _blocks(data: dict[str, Any], key: str, marks: Marks) -> list[str]:
    blocks = _values(data, key, 0, marks)
    for place, block in enumerate(blocks):
        if not isinstance(block, str) or block not in BLOCKS:
            hint = near_miss(str(block), BLOCKS)
            raise marks.fault(f"{short(block)!r} is no building block{hint}; {listed(BLOCKS)} are", 0, key, place)
    return blocks


def _sizes(data: dict[str, Any], key: str, count: int, marks: Marks) -> list[int]:
    values = _values(data, key, count, marks)
    least = 1 if key == "links-count" else 2
    for place, value in enumerate(values):
        if type(value) is not int or not least <= value <= 2**24:
            raise marks.fault(f"{key} {short(value)} is no whole number from {least} to {2**24:,}", 0, key, place)
    return values


def _numbers(data: dict[str, Any], key: str, count: int, marks: Marks, *, above_zero: bool = False) -> list[float]:
    values = _values(data, key, count, marks)
    for place, value in enumerate(values):
        good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
        if not good or (above_zero and value < 1e-6):
            raise marks.fault(f"{key} {short(value)} is no number {'above' if above_zero else 'from'} 0", 0, key, place)
    return [float(value) for value in values]


def _fault(marks: Marks, key: str, problem: str) -> InputError:
    return marks.fault(f"{key} {problem}", 0, key)


def _level(dimension: _Dimension, place: int) -> dict[str, Any]:
    """A dimension as a level of the topology document, with where its numbers come from."""
    bytes_per_s = dimension.links * dimension.gb_per_s * BYTES_PER_GB
    hops = 2 if dimension.block == "Switch" else 1
    links = "1 link" if dimension.links == 1 else f"{dimension.links:,} links"
    return {
        "name": f"dim{place}",
        "kind": BLOCKS[dimension.block],
        "size": dimension.size,
        "bandwidth": {
            "value": units.render(bytes_per_s, units.RATE),
            "source": f"file: {links} of {dimension.gb_per_s:g} GB/s, 1 GB = 2^30 B",
        },
        "latency": {
            "value": units.render(hops * dimension.latency_ns * S_PER_NS, units.TIME),
            "source": f"file: {hops} x {dimension.latency_ns:g} ns",
        },
    }
