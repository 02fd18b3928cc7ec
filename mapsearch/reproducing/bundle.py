"""A solve as a folder: model, run, topology, profile, mapping and answer, with a lock file that holds their content.

Contents: INPUTS, POOL_INPUTS, KINDS, FILES, OPTIONS, Bundle, bundle_files, write_bundle, read_lock, read_bundle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from mapsearch import documents
from mapsearch.answer import Answer
from mapsearch.api import mapping_given
from mapsearch.errors import InputError, UsageError, listed
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.rollout import Rollout
from mapsearch.inventories.run import Run
from mapsearch.pooled import TwoPools
from mapsearch.records import Inventory, first_problem, validate
from mapsearch.reproducing.differences import differences
from mapsearch.reproduction import LOCK_FILE, Difference, Lock, LockedDocument
from mapsearch.solver.provenance import checksum
from mapsearch.topologies.spec import Topology

INPUTS: dict[str, type[Inventory]] = {"model": Model, "run": Run, "topology": Topology, "profile": Profile}
"""What is solved."""
POOL_INPUTS: dict[str, type[Inventory]] = {"rollout": Rollout, "pool_topology": Topology, "pool_profile": Profile}
"""What a search of two pools takes as well; the last two where rollout has a cluster of its own."""
KINDS: dict[str, type[Inventory]] = {**INPUTS, **POOL_INPUTS, "mapping": Mapping}
"""Documents in YAML; the mapping is written where there is one."""
FILES = {**{kind: f"{kind.replace('_', '-')}.yaml" for kind in KINDS}, "answer": "answer.json"}
OPTIONS = ("devices", "top", "backend", "proof", "certify", "time_limit")
"""Options of `solve` that an answer depends on."""


@dataclass(frozen=True)
class Bundle:
    """A folder that was read back."""

    folder: str
    lock: Lock
    inputs: dict[str, Inventory]
    """The inputs and the mapping as they are now."""
    locked: dict[str, Inventory]
    """The inputs and the mapping as they were."""
    changes: list[Difference]
    """Every field of every document that is not what it was."""

    @property
    def changed(self) -> list[str]:
        """Kinds of input whose content has changed."""
        solved = [kind for kind in (*INPUTS, *POOL_INPUTS) if kind in self.inputs]
        return [kind for kind in solved if checksum(self.inputs[kind]) != checksum(self.locked[kind])]


def bundle_files(
    answer: Answer | TwoPools, inputs: Dictionary[str, Inventory], options: Dictionary[str, Any]
) -> dict[str, str]:
    """Text of every file of the folder, the lock file last. The same solve gives the same bytes.

    `inputs` are the documents that were solved, the topology before it was scaled to `devices`. Of an answer of `solve`
    the options are those of `OPTIONS`; of one about two pools all that are given.
    """
    found: dict[str, BaseModel] = {kind: inputs[kind] for kind in (*INPUTS, *POOL_INPUTS) if kind in inputs}
    best = answer.best if isinstance(answer, Answer) else answer.mapping
    if best is not None:
        found["mapping"] = mapping_given(best)
    texts = {FILES[kind]: documents.dump(_content(record)) for kind, record in found.items()}
    for kind, record in found.items():
        _check_round_trip(kind, record, texts[FILES[kind]])
    found["answer"] = answer
    texts[FILES["answer"]] = answer.to_json()
    about = answer.provenance
    names = {"model": about.model, "run": about.run, "topology": about.topology, "profile": about.profile}
    names |= {} if isinstance(answer, Answer) else {"rollout": answer.rollout}
    kept = {name: options.get(name) for name in OPTIONS} if isinstance(answer, Answer) else dict(options)
    held = {
        kind: LockedDocument(
            file=FILES[kind], name=names.get(kind, ""), sha256=checksum(record), content=_content(record)
        )
        for kind, record in found.items()
    }
    lock = Lock(
        version=about.version,
        libraries=about.libraries,
        options=kept,
        overrides=about.overrides,
        documents=held,
        sha256="",
    )
    return {**texts, LOCK_FILE: lock.model_copy(update={"sha256": _lock_sha256(lock)}).to_json()}


def _content(record: BaseModel) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(record.model_dump_json(by_alias=True))
    return data


def _lock_sha256(lock: Lock) -> str:
    return checksum(lock.model_copy(update={"sha256": ""}))


def _check_round_trip(kind: str, record: BaseModel, text: str) -> None:
    """What is written must be read as what was solved, or the folder would solve another problem."""
    again = validate(KINDS[kind], documents.parse(text, file=FILES[kind]), file=FILES[kind])
    if checksum(again) != checksum(record):
        raise RuntimeError(f"{FILES[kind]} is not read back as the {kind} that was solved")


def write_bundle(folder: str, files: Dictionary[str, str]) -> None:
    """Write the files into the folder; those of an earlier solve that are not written again are removed.

    Raises UsageError.
    """
    path = Path(folder)
    try:
        path.mkdir(exist_ok=True)
        for name in (*FILES.values(), LOCK_FILE):
            if name in files:
                (path / name).write_text(files[name], encoding="utf-8")
            else:
                (path / name).unlink(missing_ok=True)
    except OSError as problem:
        raise UsageError(f"cannot be written: {problem.strerror}", file=folder, field="--output") from None


def read_lock(folder: str) -> Lock:
    """The lock file of a folder. Raises InputError when it is missing, foreign or edited."""
    path = Path(folder) / LOCK_FILE
    if Path(folder).is_dir() and not path.is_file():
        raise InputError(
            f"holds no {LOCK_FILE}; `mapsearch solve -o DIR/` writes one, and so does rollout", file=folder
        )
    try:
        lock = Lock.model_validate(documents.load(path))
    except ValidationError as problem:
        raise first_problem(Lock, problem, str(path)) from None
    if _lock_sha256(lock) != lock.sha256:
        raise InputError(
            "was edited: its content does not match its own sha256; solve again, or restore it", file=str(path)
        )
    absent = [kind for kind in (*INPUTS, "answer") if kind not in lock.documents]
    if absent:
        raise InputError(f"locks no {listed(absent)}; solve again", file=str(path))
    return lock


def read_bundle(folder: str) -> Bundle:
    """A folder with what has changed in it. Raises InputError naming file and field; also which field was changed."""
    lock = read_lock(folder)
    # Read by this version as the files are: a field that a new version adds has not changed.
    locked = {
        kind: validate(cls, lock.documents[kind].content, file=f"{Path(folder) / LOCK_FILE}: {kind}")
        for kind, cls in KINDS.items()
        if kind in lock.documents
    }
    found: dict[str, Inventory] = {}
    changes: list[Difference] = []
    for kind, record in locked.items():
        found[kind], told = _read(folder, record, lock.documents[kind])
        changes += told
    changes += _answer_changes(folder, lock.documents["answer"])
    return Bundle(folder=folder, lock=lock, inputs=found, locked=locked, changes=changes)


def _read(folder: str, record: Inventory, locked: LockedDocument) -> tuple[Inventory, list[Difference]]:
    """A document as it is now, and the fields that differ from the locked ones. Raises InputError."""
    path = str(Path(folder) / locked.file)
    data = documents.load(path)
    try:
        found = validate(type(record), data, file=path)
    except InputError as problem:
        raw = differences(locked.file, locked.content, data)
        told = "; ".join(f"{one.field} {one.before} -> {one.after}" for one in raw[:3])
        raise InputError(
            f"{problem.problem} (changed since it was locked: {told})", file=path, field=problem.field
        ) from None
    if checksum(found) == locked.sha256:
        return found, []
    return found, differences(locked.file, locked.content, _content(found))


def _answer_changes(folder: str, locked: LockedDocument) -> list[Difference]:
    """What was edited in the answer itself; it is compared with the locked one, which the lock holds."""
    return differences(locked.file, locked.content, documents.load(Path(folder) / locked.file))
