"""Sweeps on real Dask schedulers: threads in this process, workers that are killed, and a scheduler that goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import mapsearch
from mapsearch.errors import BackendMissing, Stopped, UsageError

distributed = pytest.importorskip("distributed")
GRID = {"devices": [1, 2, 4], "fix.tp": [1, 2]}


def local(workers, **more):
    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50, **more
    )


def keys(folder):
    return [json.loads(line)["key"] for line in folder.lines()]


def test_a_scheduler_by_its_address(folder, tmp_path):
    file = folder.sweep(grid=GRID)
    with local(1, processes=False, protocol="tcp") as cluster:
        result = mapsearch.sweep(file, folder.out, scheduler=cluster.scheduler_address)
        assert result.counts() == {"feasible": 5, "infeasible": 1}
        # The cluster remembers nothing of it: a new folder is a new sweep.
        assert mapsearch.sweep(file, tmp_path / "again", scheduler=cluster.scheduler_address).kept == 0
    mapsearch.sweep(file, tmp_path / "here", jobs=1)
    one, other = ((path / "results.parquet").read_bytes() for path in (folder.out, tmp_path / "here"))
    assert one == other


def test_no_scheduler_there(folder, monkeypatch):
    from mapsearch.sweeps import cluster

    monkeypatch.setattr(cluster, "CONNECT_S", 0.5)
    file = folder.sweep(grid=GRID)
    with pytest.raises(UsageError, match=r"no scheduler answers at tcp://127\.0\.0\.1:9 within 0\.5 s"):
        mapsearch.sweep(file, folder.out, scheduler="tcp://127.0.0.1:9")
    with pytest.raises(UsageError, match="'here' is no address; write tcp://host:port"):
        mapsearch.sweep(file, folder.out, scheduler="here")


@pytest.mark.slow
def test_a_cluster_without_mapsearch_is_refused(folder):
    hidden = folder.path / "hidden" / "mapsearch"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('hidden')\n")
    with subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port=0", "--no-dashboard"],
        env={**os.environ, "PYTHONPATH": str(hidden.parent)}, cwd=folder.path, stderr=subprocess.PIPE, text=True,
    ) as scheduler:  # fmt: skip
        address = next(line.split()[-1] for line in scheduler.stderr if "Scheduler at:" in line)
        with pytest.raises(BackendMissing, match=r"cannot import mapsearch \(hidden\); install mapsearch"):
            mapsearch.sweep(folder.sweep(grid=GRID), folder.out, scheduler=address)
        scheduler.kill()


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_costs_nothing(folder):
    grid = {"devices": [1, 2, 4, 8], "run.sequence_length": [256, 512, 1024], "fix.tp": [1, 2]}
    with local(2) as cluster:
        pids = {worker.process.pid for worker in cluster.workers.values()}

        def kill_one(report):
            if report.done == 8:
                os.kill(next(iter(pids)), signal.SIGKILL)

        result = mapsearch.sweep(
            folder.sweep(grid=grid), folder.out, scheduler=cluster.scheduler_address, progress=kill_one
        )
        assert {worker.process.pid for worker in cluster.workers.values()} != pids
    assert (len(result.records), result.failures, result.missing) == (24, [], 0)
    assert len(set(keys(folder))) == len(keys(folder)) == 24


@pytest.mark.slow
def test_an_item_that_kills_its_workers_is_recorded(folder, monkeypatch):
    cloudpickle = pytest.importorskip("cloudpickle")
    from mapsearch.sweeps import cluster
    from mapsearch.sweeps.work import solved

    def deadly(text):
        if json.loads(text)["settings"]["devices"] == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return solved(text)

    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    monkeypatch.setattr(cluster, "solved", deadly)
    try:
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as made:
            result = mapsearch.sweep(
                folder.sweep(grid={"devices": [1, 2, 4]}), folder.out, scheduler=made.scheduler_address
            )
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert [record.status for record in result.records] == ["feasible", "failed", "feasible"]
    assert result.records[1].error.kind == "worker died"
    assert result.records[1].error.message == "4 workers died while they ran it"


@pytest.mark.slow
def test_a_scheduler_that_goes_leaves_the_results(folder):
    file = folder.sweep(grid=GRID)
    made = local(1)

    def close(report):
        if report.done == 2:
            made.close()

    with pytest.raises(Stopped, match=r"has gone; the results so far are kept, and the same command continues"):
        mapsearch.sweep(file, folder.out, scheduler=made.scheduler_address, progress=close)
    assert 2 <= len(folder.lines()) < 6
    assert mapsearch.sweep(file, folder.out, jobs=1).missing == 0
    assert len(set(keys(folder))) == 6


@pytest.mark.slow
def test_a_cluster_made_here(folder):
    result = mapsearch.sweep(folder.sweep(grid=GRID), folder.out, local_cluster=2)
    assert result.counts() == {"feasible": 5, "infeasible": 1}


@pytest.mark.slow
def test_ctrl_c_lets_running_items_end_on_a_cluster_made_here(folder):
    file = folder.sweep(grid={"run.sequence_length": list(range(256, 256 * 60, 256))})
    process = subprocess.Popen(
        [sys.executable, "-m", "mapsearch", "sweep", file, "-o", folder.out, "--local-cluster", "2", "-q"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    while not folder.lines():
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert 0 < len(folder.lines()) < 59
    assert not [line for line in folder.lines() if '"failed"' in line]
