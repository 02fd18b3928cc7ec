"""One item searched, on whatever machine: JSON in, JSON out, and whatever goes wrong is a record.

Contents: Task, solved.

Text goes both ways because a worker may be another program, another machine, or killed in the middle.
"""

from __future__ import annotations

import json
import time
import traceback
from dataclasses import dataclass
from typing import Any

import mapsearch
from mapsearch.api import solve
from mapsearch.errors import MapsearchError, Stopped
from mapsearch.inventories.base import validate
from mapsearch.sweeps.record import SweepItem, failed, of_answer
from mapsearch.sweeps.settings import DOCUMENTS, SOLVE, Settings

GRACE_S = 60.0
"""A search may overrun its time limit while it ends a phase; a local process that overruns it by this is killed."""


@dataclass(frozen=True)
class Task:
    """An item on its way to a worker."""

    key: str
    settings: Settings
    inputs: str

    def to_text(self) -> str:
        """As JSON on one line."""
        return json.dumps({"key": self.key, "settings": self.settings, "inputs": self.inputs})

    @property
    def deadline_s(self) -> float | None:
        """Seconds after which a worker that still runs is taken for stuck; None when the item has no time limit."""
        limit = self.settings.get("time_limit")
        return None if limit is None else 2.0 * float(limit) + GRACE_S


def solved(text: str) -> str | None:
    """Search the item of a task's text: its record as a line, or None when Ctrl-C cut the search short."""
    task = json.loads(text)
    record = _searched(task["key"], task["settings"], json.loads(task["inputs"]))
    return None if record is None else record.to_line()


def _searched(key: str, settings: Settings, inputs: dict[str, Any]) -> SweepItem | None:
    if inputs["version"] != mapsearch.__version__:
        raise Stopped(
            f"a worker has mapsearch {mapsearch.__version__}, this is {inputs['version']}; install the same one"
        )
    started = time.monotonic()
    try:
        given = {kind: validate(record, inputs[kind], file=kind) for kind, record in DOCUMENTS.items()}
        options = {name: inputs[name] for name in ("devices", *SOLVE) if name in inputs}
        answer = solve(**given, **options)  # type: ignore[arg-type]
    except MapsearchError as problem:
        return failed(key, settings, type(problem).__name__, str(problem))
    except MemoryError:
        return failed(key, settings, "MemoryError", "not enough memory for this search")
    except Exception as bug:  # one item must not stop the others; its record says that it is a bug
        lines = traceback.format_exception(bug)
        return failed(key, settings, type(bug).__name__, f"a bug: {bug}", "".join(lines))
    return None if answer.interrupted else of_answer(key, settings, answer, time.monotonic() - started)
