"""Solving a locked folder again: the same answer or not, and what the difference is laid to.

Contents: Solving, SOLVE, reproduce.

Where something changed and the answer is another one, trials say which change does it: the locked documents with one of
the changed ones each, and the locked documents alone where versions differ too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mapsearch.answer import Answer
from mapsearch.api import solve
from mapsearch.errors import InputError
from mapsearch.progress import Progress
from mapsearch.records import Inventory
from mapsearch.reproducing.bundle import INPUTS, POOL_INPUTS, Bundle, read_bundle
from mapsearch.reproducing.differences import differences
from mapsearch.reproduction import Cause, Difference, Reproduction, Trial

Watch = Callable[[Progress], Any]
ASIDE = ("provenance", "notes", "proofs", "space")
"""Parts of an answer that say how it was found, not what it is."""
MOST = 100
"""Differing fields of the answer that are kept."""


@dataclass(frozen=True)
class Solving:
    """How the folders of one command are solved again, and how their answers are read."""

    solve: Callable[[Bundle, dict[str, Inventory], Watch | None], Any]
    """The answer for some documents, with the options of the lock."""
    plain: Callable[[dict[str, Any]], dict[str, Any]]
    """What an answer is, apart from how it was found."""
    step_s: Callable[[dict[str, Any]], float | None]
    """The step of the best that it holds."""


def reproduce(folder: str, *, progress: Watch | None = None, solving: Solving | None = None) -> Reproduction:
    """Solve a folder that `solve -o DIR/` wrote, and hold the answer against the locked one.

    `solving` is for folders of another command. Raises MapsearchError when the folder cannot be read, or an input in it
    is not valid any more.
    """
    bundle = read_bundle(folder)
    if solving is None and "rollout" in bundle.inputs:
        raise InputError("is about two pools; mapsearch.pooling.repeat.reproduce_pools solves it again", file=folder)
    return _reproduced(bundle, solving or SOLVE, progress)


def _reproduced(bundle: Bundle, solving: Solving, progress: Watch | None) -> Reproduction:
    folder = bundle.folder
    try:
        now = solving.solve(bundle, bundle.inputs, progress)
    except InputError as problem:
        if not bundle.changes:
            raise
        raise InputError(f"{problem} (changed since it was locked: {_told(bundle.changes)})", file=folder) from None
    locked: dict[str, Any] = bundle.lock.documents["answer"].content
    found = _apart(solving, locked, now)
    versions = _versions(bundle, now)
    complete = not _interrupted(now) and now.status != "unknown"
    trials = _trials(bundle, solving, versions, progress) if found and complete else []
    best = solving.step_s(locked)
    cause = _cause(bundle, versions, found, trials)
    return Reproduction(
        folder=folder,
        same=not found,
        complete=complete,
        cause=cause,
        sentence=_sentence(bundle, versions, found, trials, complete=complete),
        status=now.status,
        step_time_s=solving.step_s(_data(now)),
        locked_status=locked["status"],
        locked_step_time_s=best,
        inputs=bundle.changes,
        versions=versions,
        answer=found[:MOST],
        answer_differences=len(found),
        trials=trials,
        notes=_notes(bundle, now, found),
    )


def _solved(bundle: Bundle, inputs: dict[str, Inventory], progress: Watch | None) -> Answer:
    options = bundle.lock.options
    told: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    return solve(
        inputs["model"],  # type: ignore[arg-type]
        inputs["run"],  # type: ignore[arg-type]
        inputs["topology"],  # type: ignore[arg-type]
        profile=inputs["profile"],  # type: ignore[arg-type]
        progress=progress,
        **told,
    )


def _plain(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in ASIDE}


def _first_step(answer: dict[str, Any]) -> float | None:
    return answer["mappings"][0]["step_time_s"] if answer["mappings"] else None


SOLVE = Solving(solve=_solved, plain=_plain, step_s=_first_step)
"""Folders of `solve`."""


def _data(answer: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(answer.to_json())
    return data


def _interrupted(answer: Any) -> bool:
    return bool(getattr(answer, "interrupted", False))


def _apart(solving: Solving, locked: dict[str, Any], now: Any) -> list[Difference]:
    """Fields of the answer that differ, apart from how it was found."""
    return differences("answer.json", solving.plain(locked), solving.plain(_data(now)))


def _versions(bundle: Bundle, now: Any) -> list[Difference]:
    lock, about = bundle.lock, now.provenance
    before = {"mapsearch": lock.version, **lock.libraries}
    after = {"mapsearch": about.version, **about.libraries}
    return [
        Difference(file=name, field="version", before=before.get(name, "(absent)"), after=after.get(name, "(absent)"))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    ]


def _trials(bundle: Bundle, solving: Solving, versions: list[Difference], progress: Watch | None) -> list[Trial]:
    """What each change does alone."""
    changed = bundle.changed
    wanted = [""] if versions else []
    # One changed document and nothing else needs no trial: it is the cause.
    if len(changed) + len(wanted) < 2 and not (versions and changed):
        return []
    told = []
    for kind in [*wanted, *changed]:
        inputs = {**bundle.locked, kind: bundle.inputs[kind]} if kind else bundle.locked
        answer = solving.solve(bundle, inputs, progress)
        told.append(
            Trial(
                changed=bundle.lock.documents[kind].file if kind else "",
                same=not _apart(solving, bundle.lock.documents["answer"].content, answer),
                status=answer.status,
                step_time_s=solving.step_s(_data(answer)),
            )
        )
        if _interrupted(answer):
            break
    return told


def _cause(bundle: Bundle, versions: list[Difference], found: list[Difference], trials: list[Trial]) -> Cause:
    if not found:
        return "nothing"
    by_version = [trial for trial in trials if not trial.changed]
    moved = bool(versions) and (not by_version or not by_version[0].same)
    if bundle.changed:
        return "inputs and versions" if moved else "inputs"
    return "versions" if moved else "unknown"


def _counted(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _told(changes: list[Difference]) -> str:
    first = "; ".join(f"{one.file} {one.field} {one.before} -> {one.after}" for one in changes[:3])
    return f"{first}; and {len(changes) - 3:,} more" if len(changes) > 3 else first


def _sentence(
    bundle: Bundle, versions: list[Difference], found: list[Difference], trials: list[Trial], *, complete: bool
) -> str:
    """The result in a sentence."""
    changed = f"{_counted(len(bundle.changes), 'field')} changed: {_told(bundle.changes)}" if bundle.changes else ""
    newer = f"{_counted(len(versions), 'version')} differ{'s' if len(versions) == 1 else ''}: {_told(versions)}"
    parts = [part for part in (changed, newer if versions else "") if part]
    if not complete:
        return "; ".join(["the search was stopped, so nothing is known", *parts])
    if not found:
        return "; ".join(["the same answer", *(parts or ["no input and no version changed"])])
    guilty = [trial.changed or "versions alone" for trial in trials if not trial.same]
    laid = [f"alone each of these changes the answer: {', '.join(guilty)}"] if guilty else []
    if trials and not guilty:
        laid = ["no change alone changes the answer, together they do"]
    nothing = [] if parts else ["no input and no version changed; a search with a time limit may end elsewhere"]
    return "; ".join(["another answer", *parts, *nothing, *laid])


def _notes(bundle: Bundle, now: Any, found: list[Difference]) -> list[str]:
    notes = []
    if bundle.lock.options.get("time_limit") is not None:
        notes.append("the search had a time limit: what it finds depends on the machine")
    kinds = {lock.file: kind for kind, lock in bundle.lock.documents.items()}
    outputs = {change.file for change in bundle.changes if kinds[change.file] not in (*INPUTS, *POOL_INPUTS)}
    command = "rollout" if "rollout" in bundle.inputs else "solve"
    if outputs:
        notes.append(f"{' and '.join(sorted(outputs))} changed, which `{command}` writes and does not read")
    locked = bundle.lock.documents["answer"].content
    if not found and _data(now).get("proofs") != locked.get("proofs"):
        notes.append("the same answer, proven in another way")
    return notes
