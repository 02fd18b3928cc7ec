"""The program of a local worker: it reads a task per line from stdin and writes its record, a line each.

It ends when its input ends, even in the middle of a search: no worker outlives a sweep that was killed.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading


def main() -> None:
    """Serve tasks until the input ends."""
    # Solver libraries print; what they print must not come between the records.
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    tasks: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks,), daemon=True).start()
    from mapsearch.errors import MapsearchError
    from mapsearch.sweeps.work import solved

    with os.fdopen(answers, "w", encoding="utf-8") as out:
        while True:
            text = tasks.get()
            try:
                line = solved(text)
            except MapsearchError as problem:
                line = json.dumps({"stop": str(problem)}) + "\n"
            out.write(line or "\n")
            out.flush()


def _listen(tasks: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        tasks.put(line)
    os._exit(0)
