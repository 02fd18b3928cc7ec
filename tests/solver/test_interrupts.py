"""Ctrl-C at every moment of a solve: what was found is kept, with its gap, and nothing is half done."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from tiny_cases import tiny_fabric, tiny_model, tiny_profile, tiny_run

import mapsearch
from mapsearch.answer import Answer
from mapsearch.interrupts import Interrupts, interruptible, requested
from mapsearch.solver.backends.base import remaining_s, stoppable


def press():
    os.kill(os.getpid(), signal.SIGINT)


def solve(report=None, *, hbm_mb=64.0, **options):
    return mapsearch.solve(
        tiny_model(),
        tiny_run(),
        tiny_fabric((2, 2), hbm_mb=hbm_mb),
        profile=tiny_profile(),
        progress=report,
        **options,
    )


def pressing(phase, number=0):
    """A watcher that presses Ctrl-C inside the report of a phase."""
    seen = []

    def watch(report):
        if report.phase.startswith(phase):
            if len(seen) == number:
                press()
            seen.append(report)

    return watch, seen


@pytest.mark.parametrize("backend", ["exhaustive", "cpsat", "milp"])
@pytest.mark.parametrize("phase", ["tables", "proof", "bindings"])
def test_in_any_phase_the_best_so_far_is_kept(phase, backend):
    watch, seen = pressing(phase)
    answer = solve(watch, backend=backend)
    assert seen
    assert answer.interrupted
    assert not requested()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert Answer.model_validate_json(answer.to_json()).status == answer.status
    if phase == "tables":
        assert (answer.status, answer.mappings, answer.gap) == ("unknown", [], None)
        assert answer.bound_s > 0.0
    elif phase == "proof":
        assert (answer.status, answer.gap) == ("feasible", 0.0)
        unknown = {"binding": None, "binding_note": "what binds was not looked for"}
        assert answer.mappings[0] == solve(proof="none").mappings[0].model_copy(update=unknown)
    else:
        assert answer.status == "optimal"  # it was proven before
        assert "interrupted before it was known what binds" in answer.notes


def test_half_way_through_the_tables_the_gap_is_against_the_compute_floor():
    watch, _ = pressing("tables", 3)
    answer, whole = solve(watch), solve(proof="none")
    assert answer.status == "feasible"
    assert 0.0 < answer.bound_s <= whole.bound_s
    assert answer.gap == pytest.approx(1.0 - answer.bound_s / answer.best.step_time_s)
    assert 0.0 < answer.gap < 1.0


def test_while_it_explains_why_nothing_fits():
    watch, seen = pressing("conflict")
    answer = solve(watch, hbm_mb=2.0)
    assert seen
    assert (answer.status, answer.interrupted) == ("infeasible", True)
    assert any("interrupted" in note for note in answer.notes)


def test_a_library_call_is_stopped():
    ended = threading.Event()
    threading.Timer(0.2, press).start()
    started = time.monotonic()
    with Interrupts() as interrupts:
        assert stoppable(lambda: ended.wait(20.0), ended.set)
        assert remaining_s(None) == 0.0
    assert interrupts.seen
    assert time.monotonic() - started < 5.0
    assert remaining_s(None) == float("inf")


def test_faults_of_a_library_call_are_its_callers():
    with pytest.raises(ZeroDivisionError):
        stoppable(lambda: 1 // 0, lambda: None)


def test_a_second_ctrl_c_raises(monkeypatch):
    monkeypatch.setattr("mapsearch.interrupts.ECHO_S", 0.0)
    with pytest.raises(KeyboardInterrupt), Interrupts():
        press()
        assert requested()
        time.sleep(0.01)
        press()
        time.sleep(1.0)
    assert not requested()


def test_an_echo_of_the_first_does_not():
    with Interrupts():
        press()
        press()
        time.sleep(0.01)


def test_where_nothing_is_half_done_it_raises_at_once():
    with Interrupts():
        with pytest.raises(KeyboardInterrupt), interruptible():
            press()
            time.sleep(1.0)
        with pytest.raises(KeyboardInterrupt), interruptible():
            pass  # asked for before: the block is not begun


def test_a_thread_without_signals_solves_as_usual():
    found = []
    thread = threading.Thread(target=lambda: found.append(solve(backend="cpsat")))
    thread.start()
    thread.join()
    assert found[0].status == "optimal"
