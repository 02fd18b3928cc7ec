"""From the settings of an item to inputs that need no file: what a worker anywhere can search, and what names it.

Contents: Item, Reader.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mapsearch
from mapsearch import documents
from mapsearch.calibration.shipped import default_profile, profile_named
from mapsearch.errors import InputError, UnknownName
from mapsearch.inventories.base import load_inventory, validate
from mapsearch.inventories.models import load_model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.records import Inventory
from mapsearch.sweeps.settings import DOCUMENTS, LIMITS, SOLVE, Settings
from mapsearch.topologies import fabric_of, load_topology
from mapsearch.topologies.spec import Topology

DEFAULTS = {"model": "moe-5t", "run": "long-context-128k", "topology": "asic"}
"""As for `mapsearch solve`."""
TOP = 1
"""A sweep keeps the fastest mapping of each item unless it asks for more."""


@dataclass(frozen=True)
class Item:
    """One search of a sweep."""

    key: str
    """SHA-256 of what the search depends on: the inputs' contents, the options, and the version of mapsearch."""
    settings: Settings
    problem: InputError | None = None
    """Why the inputs could not be read."""


class Reader:
    """Reads the documents that items name, each once, and changes fields in them."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._read: dict[tuple[str, str], Inventory | InputError] = {}
        self._default: dict[str, Profile] = {}

    def item(self, settings: Settings) -> Item:
        """The item with these settings; a document that cannot be used makes it one that has failed.

        Raises UnknownName for a document that does not exist: a slip of the sweep and not of one item.
        """
        try:
            inputs = self._inputs(settings)
        except UnknownName:
            raise
        except InputError as problem:
            return Item(_key({"settings": settings, "problem": str(problem)}), settings, problem=problem)
        return Item(_key(inputs), settings)

    def inputs(self, item: Item) -> str:
        """An item's inputs as canonical JSON: whole documents, no names of files. Not kept: all are too many."""
        return json.dumps(self._inputs(item.settings), sort_keys=True, separators=(",", ":"))

    def _inputs(self, settings: Settings) -> dict[str, Any]:
        named = {kind: str(settings.get(kind) or DEFAULTS.get(kind, "")) for kind in DOCUMENTS}
        run = self._document("run", self._load("run", named["run"]), settings)
        topology = self._document("topology", self._load("topology", named["topology"]), settings)
        plain = self._load("profile", named["profile"]) if named["profile"] else self._profile_for(topology)
        return {
            "version": mapsearch.__version__,
            "model": _data(self._document("model", self._load("model", named["model"]), settings)),
            "run": _data(_limited(run, settings)),
            "topology": _data(topology),
            "profile": _data(self._document("profile", plain, settings)),
            "devices": settings.get("devices"),
            "top": TOP,
            **{name: settings[name] for name in SOLVE if settings.get(name)},
        }

    def _load(self, kind: str, name: str) -> Inventory:
        place = (kind, name)
        if place not in self._read:
            try:
                self._read[place] = _READ[kind](self._path(name))
            except UnknownName:
                raise
            except InputError as problem:
                # A fit that does not exist (h100@fsdp-1999) is a name, too.
                if kind == "profile" and "@" in name and not documents.exists(Path(name)):
                    raise UnknownName(problem.problem, file=problem.file, field=problem.field) from None
                self._read[place] = problem
        found = self._read[place]
        if isinstance(found, InputError):
            raise found
        return found

    def _path(self, name: str) -> str:
        """A file beside the sweep file goes before one in the working folder and before a built-in name."""
        beside = None if self._folder is None else self._folder / name
        return str(beside) if beside is not None and documents.is_file(beside) else name

    def _profile_for(self, topology: Inventory) -> Profile:
        """The built-in profile of a topology's device."""
        assert isinstance(topology, Topology)
        text = topology.model_dump_json()
        if text not in self._default:
            self._default[text] = default_profile(fabric_of(topology))
        return self._default[text]

    def _document(self, kind: str, found: Inventory, settings: Settings) -> Inventory:
        """A document with the fields that the settings change. Raises InputError naming the setting."""
        mine = {name: value for name, value in settings.items() if name.startswith(f"{kind}.")}
        if not mine:
            return found
        data = copy.deepcopy(_data(found))
        for name, value in mine.items():
            _put(data, name.split(".")[1:], value, name)
        try:
            return validate(DOCUMENTS[kind], data, file=f"{getattr(found, 'name', kind)} with {', '.join(mine)}")
        except ValueError as problem:  # pragma: no cover - validate turns what pydantic says into InputError
            raise InputError(str(problem), field=", ".join(mine)) from None


_READ: dict[str, Callable[[str], Inventory]] = {
    "model": load_model,
    "run": lambda name: load_inventory(Run, name),
    "topology": load_topology,
    "profile": profile_named,
}


def _data(document: Inventory) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(document.model_dump_json())
    return data


def _limited(run: Inventory, settings: Settings) -> Inventory:
    """The run with the item's own constraints beside those it has. Raises InputError."""
    assert isinstance(run, Run)
    limits = run.constraints.model_dump(exclude={"sources"})
    mine = {name: value for name, value in settings.items() if name.partition(".")[0] in LIMITS}
    for name, value in mine.items():
        kind, _, axis = name.partition(".")
        limits[kind] = {**limits[kind], axis: value}
    return run.replaced(constraints=limits) if mine else run


def _put(data: dict[str, Any], path: list[str], value: Any, setting: str) -> None:
    """Set one field, looking through records, and through lists by name or number. Raises InputError."""
    here: Any = data
    for part in path[:-1]:
        if isinstance(here, list):
            here = here[_place(here, part, setting)]
        elif isinstance(here, dict):
            if here.get(part) is None:
                here[part] = {}
            here = here[part]
        else:
            raise InputError(f"there is nothing inside the value {here!r}", field=setting)
    last = path[-1]
    if isinstance(here, list):
        here[_place(here, last, setting)] = value
    elif isinstance(here, dict):
        here[last] = value
        # The old value's source does not speak for the new one.
        here.get("sources", {}).pop(last, None)
    else:
        raise InputError(f"there is nothing inside the value {here!r}", field=setting)


def _place(parts: list[Any], word: str, setting: str) -> int:
    names = [str(part.get("name", part.get("id", ""))) if isinstance(part, dict) else "" for part in parts]
    if word in names:
        return names.index(word)
    if word.isdigit() and int(word) < len(parts):
        return int(word)
    known = ", ".join(name for name in names if name) or f"0 to {len(parts) - 1}"
    raise InputError(f"the list has no {word!r}; it has {known}", field=setting)


def _key(inputs: dict[str, Any]) -> str:
    text = json.dumps(_without_sources(inputs), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _without_sources(data: Any) -> Any:
    """Where a number came from changes no result: a better citation does not run a sweep again."""
    if isinstance(data, dict):
        return {name: _without_sources(value) for name, value in data.items() if name != "sources"}
    return [_without_sources(value) for value in data] if isinstance(data, list) else data
