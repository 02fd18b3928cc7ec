"""Worker processes that die, hang or end well; the workers are programs of three lines."""

from __future__ import annotations

import os

import pytest

from mapsearch.errors import Stopped
from mapsearch.sweeps import processes, work
from mapsearch.sweeps.processes import Processes
from mapsearch.sweeps.work import Task

PROGRAM = """
import json, os, pathlib, signal, sys, time
for line in sys.stdin:
    task = json.loads(line)
    what = task["inputs"]
    if what == "die" or (what.startswith("once") and not pathlib.Path(what[5:]).exists()):
        pathlib.Path(what[5:] or os.devnull).touch()
        print("last words", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "hang":
        time.sleep(60)
    if what == "stop":
        print(json.dumps({"stop": "a worker has another version"}), flush=True)
        continue
    record = {"key": task["key"], "settings": task["settings"], "status": "infeasible", "notes": [str(os.getpid())]}
    print(json.dumps(record), flush=True)
"""


@pytest.fixture(autouse=True)
def _program(monkeypatch):
    monkeypatch.setattr(processes, "_PROGRAM", PROGRAM)


def ran(count, *what, **settings):
    tasks = (Task(f"{number}", settings, text) for number, text in enumerate(what))
    with Processes(count) as runner:
        found = {record.key: record for record in runner.run(tasks)}
        pids = runner.pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    return found


def test_each_item_once_on_so_many_workers():
    found = ran(2, *["work"] * 9)
    assert sorted(found) == [str(number) for number in range(9)]
    assert len({record.notes[0] for record in found.values()}) == 2


def test_a_worker_that_dies_once_costs_nothing(tmp_path):
    found = ran(2, "work", f"once {tmp_path / 'died'}", "work", "work")
    assert [record.status for record in found.values()] == ["infeasible"] * 4


def test_a_worker_that_always_dies_is_the_items_failure():
    found = ran(2, "work", "die", "work", "work")
    assert {key for key, record in found.items() if record.done} == {"0", "2", "3"}
    assert found["1"].error.kind == "worker died"
    assert found["1"].error.message == (
        "its worker process died with signal SIGKILL (out of memory?), 2 times: last words"
    )


def test_a_worker_that_hangs_is_killed_after_its_time_limit(monkeypatch):
    monkeypatch.setattr(work, "GRACE_S", 0.0)
    found = ran(2, "work", "hang", "work", time_limit=0.5)
    assert found["1"].error.kind == "time limit"
    assert {key for key, record in found.items() if record.done} == {"0", "2"}


def test_another_version_ends_the_sweep():
    with pytest.raises(Stopped, match="another version"):
        ran(1, "stop")
