"""A folder of a solve so small that it is repeated in a tenth of a second, and every way to change it."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "solver"))

from tiny_cases import tiny_model, tiny_profile, tiny_run

from mapsearch import documents
from mapsearch.api import solve
from mapsearch.errors import InputError
from mapsearch.inventories.base import validate
from mapsearch.reproducing.bundle import KINDS, bundle_files, write_bundle
from mapsearch.topologies.spec import Topology

TOPOLOGY = {
    "name": "tiny",
    "device": {
        "name": "tiny device",
        "hbm": "64 MB",
        "hbm_bandwidth": "1 TB/s",
        "peak": {"bf16": "10 TFLOP/s", "fp8": "20 TFLOP/s"},
        "host_memory": "1 GB",
        "host_bandwidth": "10 GB/s",
        "nvme": "4 GB",
        "nvme_bandwidth": "2 GB/s",
    },
    "levels": [
        {"name": "board", "size": 2, "bandwidth": "100 GB/s", "latency": "1 us", "high_bandwidth": True},
        {"name": "rack", "size": 2, "bandwidth": "25 GB/s", "latency": "2 us"},
    ],
}
OPTIONS = {"devices": None, "top": 2, "backend": "auto", "proof": "none", "certify": False, "time_limit": None}


def tiny_inputs(**topology: Any) -> dict[str, Any]:
    run = tiny_run(micro_batch=[1], vpp=[1], schedule=["1f1b"], recompute=["none"])
    spec = validate(Topology, {**TOPOLOGY, **topology}, file="tiny topology")
    return {"model": tiny_model(), "run": run, "topology": spec, "profile": tiny_profile()}


def tiny_folder(path: Path, inputs: dict[str, Any] | None = None, **options: Any) -> Path:
    """Solve and write."""
    found = inputs or tiny_inputs()
    told = {**OPTIONS, **options}
    plain = {name: value for name, value in told.items() if value is not None}
    answer = solve(found["model"], found["run"], found["topology"], profile=found["profile"], **plain)
    write_bundle(str(path), bundle_files(answer, found, told))
    return path


def leaves(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values of a document; empty lists and records are values as well."""
    inner: Any = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    found = list(inner)
    if not found:
        yield path
    for key, value in found:
        yield from leaves(value, (*path, key))


def all_leaves() -> list[tuple[str, tuple[Any, ...]]]:
    """Every field of all five documents of the tiny folder, from their own records."""
    records: dict[str, Any] = {**tiny_inputs(), "mapping": _mapping()}
    found = []
    for kind, record in records.items():
        found += [(kind, path) for path in leaves(json.loads(record.model_dump_json()))]
    return found


def _mapping() -> Any:
    return validate(KINDS["mapping"], {"dp": 2, "pp": 2, "ep": 2, "placement": {"pp": {"rack": 2}}}, file="mapping")


def others(value: Any) -> list[Any]:
    """Values to try in the place of one, the likeliest to be valid first."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value * 2, value + 1, value / 2, 0.5, 1, 0, value + 0.25]
    if value is None:
        return [1.0, "1 W", 1, "none", "param-gather"]
    if isinstance(value, list):
        return [[1], ["router"], [{"name": "x"}], ["board0"]]
    if isinstance(value, dict):
        return [{"name": "assumed"}, {"layers": "assumed"}, {"tp": 1}, {"tp": [1]}, {"tp": "free"}, {"rack": ["tp"]}]
    number, _, unit = str(value).partition(" ")
    try:
        twice = [f"{float(number) * 2:g} {unit}", f"{float(number) + 1:g} {unit}"] if unit else []
    except ValueError:
        twice = []
    words = ["fp16", "mla", "all", "full", "norm", "optimizer", "ulysses", "all-gather", "gpipe", "zb-h1", "flop"]
    more = ["half", "layer", "redistributed", "flash-2", "ring", "variable", "fixed", "both", "measured", "torchtitan"]
    return [*twice, f"{value} again", *words, *more]


def put(data: Any, path: tuple[Any, ...], value: Any) -> None:
    """Set one value."""
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = value


def changed_text(kind: str, text: str, path: tuple[Any, ...]) -> tuple[str, bool]:
    """The document with one field changed, and whether it is still a valid one."""
    cls, document = KINDS[kind], documents.parse(text, file=kind)
    before = validate(cls, document, file=kind)
    old: Any = document
    for key in path:
        old = old[key]
    data = copy.deepcopy(document)
    for value in others(old):
        put(data, path, value)
        try:
            if validate(cls, copy.deepcopy(data), file=kind) != before:
                return documents.dump(data), True
        except InputError:
            continue
    return documents.dump(data), False
