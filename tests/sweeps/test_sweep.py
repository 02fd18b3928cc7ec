"""Whole sweeps: resumed, changed, failed in part, killed, and the same bytes however they ran."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from tiny_sweeps import BASE

import mapsearch
from mapsearch.errors import BackendMissing, InputError, UsageError
from mapsearch.sweeps import run

GRID = {"devices": [1, 2, 4], "fix.tp": [1, 2]}


def parquet(folder):
    return (folder.out / "results.parquet").read_bytes()


def keys(folder):
    return [json.loads(line)["key"] for line in folder.lines()]


def test_a_small_sweep(folder):
    seen, told = [], []
    file = folder.sweep(grid=GRID)
    result = mapsearch.sweep(file, folder.out, jobs=1, progress=seen.append, remark=told.append)
    assert result.counts() == {"feasible": 5, "infeasible": 1}
    assert [(record.settings["devices"], record.settings["fix.tp"]) for record in result.records] == [
        (devices, tp) for devices in (1, 2, 4) for tp in (1, 2)
    ]
    assert [report.done for report in seen] == list(range(7))
    assert (result.kept, result.missing, result.failures, told) == (0, 0, [], [])
    best = result.records[4]
    alone = mapsearch.solve(
        folder_model(folder), folder_run(folder, tp=1), "asic-8", devices=4, top=1, proof="none"
    ).best
    assert (best.step_time_s, best.sizes) == (alone.step_time_s, alone.sizes)
    assert list(result.to_dataframe()["fix.tp"]) == [1, 2, 1, 2, 1, 2]


def folder_model(folder):
    from mapsearch.inventories.models import load_model

    return load_model(str(folder.path / "model.yaml"))


def folder_run(folder, tp):
    from mapsearch.inventories.base import load_inventory

    run_ = load_inventory(mapsearch.Run, str(folder.path / "run.yaml"))
    return run_.replaced(constraints={"fix": {"tp": tp}})


def test_equal_sweeps_give_equal_bytes_apart_from_wall_times(folder, tmp_path):
    file = folder.sweep(grid=GRID)
    first = mapsearch.sweep(file, folder.out, jobs=1)
    second = mapsearch.sweep(file, tmp_path / "second", jobs=2)
    strip = {"exclude": {"timings_s"}}
    assert [a.model_dump_json(**strip) for a in first.records] == [b.model_dump_json(**strip) for b in second.records]
    pytest.importorskip("pyarrow")
    assert parquet(folder) == (tmp_path / "second" / "results.parquet").read_bytes()


def test_what_is_there_is_kept_and_what_is_new_is_run(folder):
    mapsearch.sweep(folder.sweep(grid=GRID), folder.out, jobs=1)
    before, told = folder.lines(), []
    again = mapsearch.sweep(folder.sweep(grid=GRID), folder.out, jobs=1, remark=told.append)
    assert (again.kept, folder.lines()) == (6, before)
    assert told == [f"6 of 6 items have a result in {folder.out} already"]
    told.clear()
    changed = mapsearch.sweep(
        folder.sweep(grid={"fix.tp": [1, 4], "devices": [2, 4]}), folder.out, jobs=1, remark=told.append
    )
    assert folder.lines()[:6] == before
    assert len(folder.lines()) == 8
    assert (changed.kept, [list(record.settings)[-2:] for record in changed.records[:1]]) == (
        2,
        [["fix.tp", "devices"]],
    )
    assert told == [
        f"2 of 4 items have a result in {folder.out} already",
        f"of no item of this sweep: 4 results in {folder.out}, kept in results.jsonl",
    ]


def test_a_failed_item_is_recorded_and_the_rest_goes_on(folder):
    (folder.path / "bad.yaml").write_text("{name: bad, layers: -4, hidden: 256, heads: 8}\n")
    file = folder.sweep(grid={"model": ["bad.yaml", "model.yaml"]}, items=[{"devices": 12}])
    told = []
    result = mapsearch.sweep(file, folder.out, jobs=1, remark=told.append)
    assert [record.status for record in result.records] == ["failed", "feasible", "failed"]
    assert result.records[0].error.kind == "InputError"
    assert "bad.yaml: layers" in result.records[0].error.message
    again = mapsearch.sweep(file, folder.out, jobs=1, remark=told.append)
    assert again.records == result.records
    assert told == [
        f"3 of 3 items have a result in {folder.out} already, 2 of them failed (--retry-failed runs those again)"
    ]
    (folder.path / "bad.yaml").write_text((folder.path / "model.yaml").read_text().replace("layers: 4", "layers: 8"))
    mended = mapsearch.sweep(file, folder.out, jobs=1, retry_failed=True)
    assert [record.status for record in mended.records] == ["feasible", "feasible", "failed"]
    assert len(set(keys(folder))) == len(folder.lines()) == 4


def test_a_bug_is_a_record_with_its_traceback(folder, monkeypatch):
    from mapsearch.sweeps import work

    def broken(**given):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(work, "solve", broken)
    (record,) = mapsearch.sweep(folder.sweep(grid={"devices": [1]}), folder.out, jobs=1).records
    assert (record.error.kind, record.error.message) == ("ZeroDivisionError", "a bug: oh")
    assert "in broken" in record.error.traceback


def test_an_item_that_runs_out_of_time_says_so(folder):
    file = folder.sweep(grid={"time_limit": [1e-9]})
    (record,) = mapsearch.sweep(file, folder.out, jobs=1).records
    assert record.status == "unknown"
    assert record.error.kind == "time limit"
    assert "time limit" in record.error.message


def program(file, out, *options):
    return subprocess.Popen(
        [sys.executable, "-m", "mapsearch", "sweep", file, "-o", out, *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_killed_in_the_middle_nothing_is_lost_or_doubled(folder, tmp_path, jobs):
    grid = {"devices": [1, 2, 4, 8], "run.sequence_length": [256, 512], "fix.tp": [1, 2]}
    file = folder.sweep(grid=grid)
    process = program(file, folder.out, "--jobs", jobs)
    wait_for(lambda: len(folder.lines()) >= 3)
    process.kill()
    process.communicate()
    before = folder.lines()
    assert 3 <= len(before) < 16
    result = mapsearch.sweep(file, folder.out, jobs=1)
    assert (result.kept, result.missing) == (sum(line.endswith("}") for line in before), 0)
    assert folder.lines()[: result.kept] == before[: result.kept]
    assert len(set(keys(folder))) == len(keys(folder)) == 16
    if jobs == "1":
        mapsearch.sweep(file, tmp_path / "whole", jobs=1)
        assert parquet(folder) == (tmp_path / "whole" / "results.parquet").read_bytes()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs /proc")
def test_no_worker_outlives_a_killed_sweep(folder):
    process = program(folder.sweep(grid={"run.sequence_length": list(range(256, 256 * 40, 256))}), folder.out, "-j2")
    wait_for(folder.lines)
    workers = children(process.pid)
    assert len(workers) == 2
    process.kill()
    process.communicate()
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers))


def test_ctrl_c_lets_running_items_end(folder):
    process = program(
        folder.sweep(grid={"run.sequence_length": list(range(256, 256 * 60, 256))}), folder.out, "-j2", "-q"
    )
    wait_for(folder.lines)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert 0 < len(folder.lines()) < 59
    assert "not run" in out


def test_two_places_to_run_exclude_each_other(folder):
    file = folder.sweep(grid=GRID)
    with pytest.raises(UsageError, match="jobs and local-cluster exclude each other"):
        mapsearch.sweep(file, folder.out, jobs=2, local_cluster=2)
    with pytest.raises(UsageError, match="at least 1, not 0"):
        mapsearch.sweep(file, folder.out, jobs=0)


def test_missing_libraries_are_named_with_their_extra(folder, monkeypatch):
    file = folder.sweep(grid={"devices": [1]})
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(BackendMissing, match=r"distributed is not installed; pip install 'mapsearch\[sweep\]'"):
        mapsearch.sweep(file, folder.out, local_cluster=2)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    told = []
    assert mapsearch.sweep(file, folder.out, jobs=1, remark=told.append).counts() == {"feasible": 1}
    assert "results.parquet is not written: pyarrow is not installed" in told[0]
    with pytest.raises(BackendMissing, match="pyarrow"):
        run.export(file, folder.out)


def test_the_parquet_file_has_a_row_per_item_in_order(folder):
    reading = pytest.importorskip("pyarrow.parquet")
    grid = {"devices": [2, None], "run.zero": [[1], [0]], "run.reserve": [0.1, 0]}
    mapsearch.sweep(folder.sweep(grid=grid), folder.out, jobs=1)
    table = reading.read_table(folder.out / "results.parquet").to_pydict()
    assert table["item"] == list(range(1, 9))
    assert table["setting.devices"] == [2] * 4 + [None] * 4
    assert table["setting.run.zero"] == ["[1]", "[1]", "[0]", "[0]"] * 2
    assert table["setting.run.reserve"] == [0.1, 0.0] * 4
    assert table["status"] == ["feasible"] * 8
    assert all(step > 0 for step in table["step_time_s"])
    assert not [name for name in table if "timing" in name]


def test_the_data_of_a_sweep_will_do(folder):
    from mapsearch.sweeps.spec import Sweep

    spec = {"base": {"model": "llama-3.1-8b", "topology": "asic-8"}, "grid": {"nope": [1]}}
    with pytest.raises(InputError, match="'nope' is not a setting"):
        mapsearch.sweep(spec, folder.out)
    with pytest.raises(InputError, match="'nope' is not a setting"):
        mapsearch.sweep(Sweep(**spec), folder.out)


def test_items_can_ask_for_a_certificate(folder):
    grid = {"certify": [False, True], "fix.tp": [1, 2]}
    base = {**BASE, "devices": 2, "proof": "auto"}
    result = mapsearch.sweep(folder.sweep(grid=grid, base=base), folder.out, jobs=1)
    plain, certified = result.records[:2], result.records[2:]

    assert [record.status for record in result.records] == ["optimal"] * 4
    assert not any(record.certified or record.proofs for record in plain)
    for record, without in zip(certified, plain, strict=True):
        assert record.certified
        assert record.proof == "proven"
        assert {"decomposition", "cpsat", "milp"} <= {proof["backend"] for proof in record.proofs}
        assert (record.step_time_s, record.sizes) == (without.step_time_s, without.sizes)


def test_a_certificate_that_is_not_asked_for_is_the_same_item(folder):
    first = run.plan_of(folder.sweep(grid={"devices": [1]})).items[0].key
    assert run.plan_of(folder.sweep(grid={"devices": [1], "certify": [False]})).items[0].key == first
    assert run.plan_of(folder.sweep(grid={"devices": [1], "certify": [True]})).items[0].key != first
    with pytest.raises(InputError, match="takes true or false, not 'yes'"):
        run.plan_of(folder.sweep(grid={"devices": [1], "certify": ["yes"]}))


def test_a_certificate_without_a_proof_is_a_failed_item(folder):
    record = mapsearch.sweep(folder.sweep(grid={"devices": [1], "certify": [True]}), folder.out, jobs=1).records[0]
    assert record.error.kind == "UsageError"
    assert "none and certify exclude each other" in record.error.message
