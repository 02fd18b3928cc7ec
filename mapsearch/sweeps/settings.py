"""What a sweep can set, by name, and the check of each value as it is written.

Contents: Settings, DOCUMENTS, SOLVE, LIMITS, PLAIN, check_setting, shown, counted.

A setting is one of: an input (`model`), an option of the search (`top`), a field of an input's document
(`run.sequence_length`, `topology.device.hbm`), or a constraint on an axis (`fix.tp`, `inside.rack`).
"""

from __future__ import annotations

import json
import math
from typing import Any

from pydantic import ValidationError

from mapsearch import axes
from mapsearch.errors import InputError, listed, near_miss
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run, UserConstraints
from mapsearch.records import Inventory
from mapsearch.topologies.spec import Topology

Settings = dict[str, Any]
"""Setting: value as written, in the order of the sweep."""

DOCUMENTS: dict[str, type[Inventory]] = {"model": Model, "run": Run, "topology": Topology, "profile": Profile}
SOLVE = ("top", "backend", "proof", "certify", "time_limit")
LIMITS = ("fix", "allow", "at_most", "at_least", "inside")
PLAIN = (*DOCUMENTS, "devices", *SOLVE)
_CHOICES = {"backend": ("auto", "exhaustive", "cpsat", "milp"), "proof": ("auto", "none")}
_COUNTS = {"devices": 2**31, "top": 1000}
"""Setting: its largest value; the least is 1."""
_OPTIONAL = ("devices", "profile", "time_limit")
_ORDERED = (*axes.SIZES, "vpp", "micro_batch", "zero")
"""Axes with an order, which can be limited from above and below."""


def check_setting(name: str, value: Any, *, file: str, field: str) -> None:
    """Refuse a name that is no setting, and a value that it cannot take. Raises InputError."""
    problem = _trouble(name, value)
    if problem:
        raise InputError(problem, file=file, field=field)


def shown(value: Any) -> str:
    """A value in a table: words as they are, the rest as short JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": ")).replace('"', "")


def counted(number: int, word: str) -> str:
    """`1 item`, `2,000 items`."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _trouble(name: str, value: Any) -> str:
    """What is wrong with a setting; empty when nothing is."""
    head, dot, rest = name.partition(".")
    if name in PLAIN:
        return _plain_trouble(name, value)
    if dot and rest and head in DOCUMENTS:
        field = rest.split(".")[0]
        known = [each for each in DOCUMENTS[head].model_fields if each != "sources"]
        if field in known:
            return ""
        return f"{field!r} is no field of a {head}{near_miss(field, known)}; fields: {listed(known)}"
    if dot and rest and head in LIMITS:
        return _limit_trouble(head, rest, value)
    kinds = (*PLAIN, *(f"{head}.FIELD" for head in DOCUMENTS), *(f"{head}.AXIS" for head in LIMITS[:-1]))
    hint = f" (did you mean 'run.{name}'?)" if name in Run.model_fields else near_miss(name, PLAIN)
    return f"{name!r} is not a setting{hint}; settings: {listed([*kinds, 'inside.LEVEL'])}"


def _plain_trouble(name: str, value: Any) -> str:
    if value is None and name in _OPTIONAL:
        return ""
    if name in _COUNTS:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if whole and 1 <= value <= _COUNTS[name]:
            return ""
        return f"takes a whole number from 1 to {_COUNTS[name]:,}, not {value!r}"
    if name in _CHOICES:
        return "" if value in _CHOICES[name] else f"{value!r} is not accepted; accepted: {listed(_CHOICES[name])}"
    if name in {"certify", "time_limit"}:
        return _option_trouble(name, value)
    named = isinstance(value, str) and value.strip() and "\0" not in value
    return "" if named else f"takes the name of a {name} or a file, not {value!r}"


def _option_trouble(name: str, value: Any) -> str:
    if name == "certify":
        return "" if isinstance(value, bool) else f"takes true or false, not {value!r}"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return "" if number and 0 < value < math.inf else f"takes a positive number of seconds, not {value!r}"


def _limit_trouble(kind: str, axis: str, value: Any) -> str:
    if kind in ("at_most", "at_least"):
        if axis not in _ORDERED:
            return f"{axis!r} has no order to limit{near_miss(axis, _ORDERED)}; accepted: {listed(_ORDERED)}"
        if not isinstance(value, int) or isinstance(value, bool):
            return f"takes a whole number, not {value!r}"
    if kind in ("allow", "inside") and not (isinstance(value, list) and value):
        return f"takes a list, such as {'[32, 64]' if kind == 'allow' else '[ep]'}, not {value!r}"
    try:
        UserConstraints.model_validate({kind: {axis: value}})
    except ValidationError as problem:
        return str(problem.errors()[0]["msg"]).removeprefix("Value error, ")
    return ""
