"""What an answer rests on: names, checksums, versions, and the values that nobody measured.

Contents: Named, provenance_of, assumptions, checksum.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

from pydantic import BaseModel

import mapsearch
from mapsearch.answer import Provenance
from mapsearch.arrays import remembered
from mapsearch.inventories.profile import Profile
from mapsearch.records import Record
from mapsearch.topologies.fabric import Fabric

LIBRARIES = ("numpy", "pydantic", "networkx", "ortools", "pulp", "highspy")
IRREGULAR = ("cores", "site", "reading", "alternatives")
"""Facts of a fabric that only clusters with holes or several types have."""
UNPROVEN = ("assumed", "fitted")
"""Sources that are no evidence from outside."""


@dataclass(frozen=True)
class Named:
    """One input as it was asked for."""

    kind: str
    name: str
    record: Record | Fabric


def provenance_of(inputs: list[Named], devices: int | None = None) -> Provenance:
    """Names, checksums, versions and assumptions of an answer's inputs; `devices` when the topology was scaled."""
    names = {named.kind: named.name for named in inputs}
    return Provenance(
        version=mapsearch.__version__,
        **names,
        devices=devices,
        input_sha256={named.kind: checksum(named.record) for named in inputs},
        assumptions=[line for named in inputs for line in assumptions(named.record, named.kind, named.name)],
        libraries=dict(_versions()),
    )


@remembered()
def checksum(record: BaseModel | Fabric) -> str:
    """SHA-256 of the canonical JSON of an input, or of any typed result."""
    if isinstance(record, BaseModel):
        data = record.model_dump_json()
    else:
        # What regular clusters do not have is left out, so that their checksum is what it was.
        plain = dataclasses.asdict(dataclasses.replace(record, site=None, alternatives=()))
        data = json.dumps({key: value for key, value in plain.items() if value or key not in IRREGULAR})
    return hashlib.sha256(data.encode()).hexdigest()


@remembered()
def assumptions(record: Record | Fabric, kind: str, name: str) -> list[str]:
    """A line per value that is tagged assumed or fitted: `topology asic: device hbm 96 GB (assumed)`."""
    if isinstance(record, Fabric):
        tagged = {**record.sources, **{f"device {k}": v for k, v in record.device.sources.items()}}
        found = [(field.replace(".", " "), "", source) for field, source in sorted(tagged.items())]
    else:
        found = list(_tagged(record, record.model_dump(), ""))
    lines = [
        f"{kind} {name}: {' '.join(part for part in (field.replace('_', ' '), value) if part)} ({source})"
        for field, value, source in found
        if any(word in source.lower() for word in UNPROVEN)
    ]
    if isinstance(record, Profile) and record.evidence in UNPROVEN and not lines:
        lines.append(f"profile {name}: all efficiencies ({record.evidence})")
    return lines


def _tagged(record: Record, dumped: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    """Field, value as written, and source of every tagged value, parts and lists of parts included."""
    for name in sorted(record.sources.keys() - type(record).model_fields.keys()):
        yield f"{path}{name}", "", record.sources[name]  # of what is no field: rates of a graph's links
    for name in type(record).model_fields:
        if name not in dumped:  # left out where it is empty
            continue
        value = getattr(record, name)
        if name in record.sources:
            yield f"{path}{name}", _written(dumped[name]), record.sources[name]
        if isinstance(value, Record):
            yield from _tagged(value, dumped[name], f"{path}{name} ")
        elif isinstance(value, list):
            for part, written in zip(value, dumped[name], strict=True):
                if isinstance(part, Record):
                    yield from _tagged(part, written, f"{path}{getattr(part, 'name', name)} ")


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_written(each)}" for key, each in value.items())
    if isinstance(value, list):
        return ", ".join(_written(each) for each in value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


@cache
def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
