"""Files for launchers: small ones by hand, and what they make of many mappings."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings

from mapsearch.axes import SIZES
from mapsearch.errors import InputError
from mapsearch.inventories.mapping import Mapping
from mapsearch.placing import placed_of
from mapsearch.placing.exports import EXPORTS, exported
from mapsearch.placing.exports.job import Job, checked
from mapsearch.placing.exports.megatron import groups_of_arguments
from mapsearch.placing.hosts import hosts_of, named
from mapsearch.placing.placed import rank_groups
from tests.placing.test_choose import graph
from tests.placing.test_placed import cluster, placements


def job_of(mapping, topology, **facts):
    placed = placed_of(mapping, topology)
    return Job(placed, tuple(hosts_of(placed, topology)), **facts)


def test_megatron_groups_of_sixteen_ranks():
    """FORMULAS 5.1: W = 16, TP2 CP2 DP2 PP2, EP8 ETP1."""
    text = "--tensor-model-parallel-size 2 --context-parallel-size 2 --pipeline-model-parallel-size 2 "
    text += "--expert-model-parallel-size 8 --expert-tensor-parallel-size 1"
    groups = groups_of_arguments(text, 16)
    assert groups["tp"][0] == [0, 1]
    assert groups["cp"][0] == [0, 2]
    assert groups["dp"][0] == [0, 4]
    assert groups["pp"][0] == [0, 8]
    assert groups["ep"] == [list(range(8)), list(range(8, 16))]
    swapped = groups_of_arguments(f"{text} --use-tp-pp-dp-mapping", 16)
    assert swapped["pp"][0] == [0, 4]
    assert swapped["dp"][0] == [0, 8]


def test_megatron_by_hand():
    files = exported(job_of(Mapping(tp=2, dp=4, ep=4, edp=2), cluster(4, 2)), "megatron")
    assert files["args.txt"].split("\n") == [
        "--tensor-model-parallel-size 2",
        "--context-parallel-size 1",
        "--pipeline-model-parallel-size 1",
        "--expert-model-parallel-size 4",
        "--expert-tensor-parallel-size 1",
        "",
    ]
    assert files["hostfile"] == "l00 slots=4\nl01 slots=4\n"
    assert files["devices"] == "l00 0,1,2,3\nl01 0,1,2,3\n"
    assert "--nnodes=2 --nproc-per-node=4" in files["launch.sh"]


def test_stages_inside_a_host_take_the_other_order_of_megatron():
    placement = {"pp": {"l0": 4}, "dp": {"l1": 2}, "edp": {"l1": 2}}
    files = exported(job_of(Mapping(pp=4, dp=2, edp=2, placement=placement), cluster(4, 2)), "megatron")
    assert "--use-tp-pp-dp-mapping" in files["args.txt"]
    assert files["hostfile"] == "l00 slots=4\nl01 slots=4\n"


def test_hosts_whose_ranks_are_not_consecutive_are_named_rank_by_rank():
    placement = {"tp": {"l1": 2}, "dp": {"l0": 2}, "etp": {"l1": 2}, "edp": {"l0": 2}}
    job = job_of(Mapping(tp=2, dp=2, etp=2, edp=2, placement=placement), cluster(2, 2))
    with pytest.raises(InputError, match=r"puts ranks 0, 2 on l00; export slurm or rankfile"):
        exported(job, "torchrun")
    assert exported(job, "slurm")["tasks"] == "l00\nl01\nl00\nl01\n"
    assert exported(job, "megatron")["tasks"] == "l00\nl01\nl00\nl01\n"
    assert exported(job, "rankfile")["rankfile"].splitlines() == [
        "rank 0=l00 slot=0",
        "rank 1=l01 slot=0",
        "rank 2=l00 slot=1",
        "rank 3=l01 slot=1",
    ]


def test_another_order_of_axes_is_said_where_the_usual_one_cannot_give_the_groups():
    """EP covers TP and half of DP, CP is outside both: DP has to count before CP."""
    placement = {
        "tp": {"l0": 2}, "dp": {"l1": 4}, "cp": {"l2": 2}, "ep": {"l0": 2, "l1": 2}, "edp": {"l1": 2, "l2": 2},
    }  # fmt: skip
    job = job_of(Mapping(tp=2, dp=4, cp=2, ep=4, edp=4, placement=placement), cluster(2, 4, 2))
    assert job.placed.order == "tp-ep-dp-cp-pp"
    files = exported(job, "megatron")
    assert files["order.txt"].splitlines()[0] == "tp-ep-dp-cp-pp"
    assert job.placed.devices_of("ep", 0) == tuple(f"l10/l0{i}/device{k}" for i in (0, 1) for k in (0, 1))


def test_a_placement_that_megatron_cannot_count_is_refused():
    """Ranks count TP first, then DP, or the reverse, and so do ETP and EDP; here each grid would need the other way."""
    placement = {"tp": {"l0": 2}, "dp": {"l1": 2}, "etp": {"l1": 2}, "edp": {"l0": 2}}
    job = job_of(Mapping(tp=2, dp=2, etp=2, edp=2, placement=placement), cluster(2, 2))
    assert not job.placed.counted
    with pytest.raises(InputError, match="none gives the groups of this placement; export json or slurm"):
        exported(job, "megatron")
    assert exported(job, "slurm")


def test_order_of_devices_inside_hosts():
    placement = {"pp": {"l0": 2}, "tp": {"l0": 2}, "etp": {"l0": 2}, "dp": {"l1": 2}, "edp": {"l1": 2}}
    job = job_of(Mapping(tp=2, pp=2, etp=2, dp=2, edp=2, placement=placement), cluster(4, 2))
    assert exported(job, "nccl")["devices.txt"].splitlines() == [
        "l00 CUDA_VISIBLE_DEVICES=0,1,2,3 RANKS=0,1,4,5",
        "l01 CUDA_VISIBLE_DEVICES=0,1,2,3 RANKS=2,3,6,7",
    ]


def test_devices_that_are_down_keep_their_numbers():
    job = job_of(Mapping(tp=3, dp=2, ep=6), cluster(4, 3, down=("l01", "l02/device0")))
    assert exported(job, "nccl")["devices.txt"].splitlines() == [
        "l00 CUDA_VISIBLE_DEVICES=1,2,3 RANKS=0,1,2",
        "l02 CUDA_VISIBLE_DEVICES=1,2,3 RANKS=3,4,5",
    ]
    links = [(f"g{host}/gpu{i}", f"s{host}", 50) for host in "ab" for i in range(4)] + [("sa", "sb", 200)]
    mapping = Mapping(tp=3, dp=2, ep=6)
    assert exported(job_of(mapping, graph(links, down=["ga/gpu1"])), "nccl")["devices.txt"].splitlines() == [
        "ga CUDA_VISIBLE_DEVICES=0,2,3 RANKS=0,1,2",
        "gb CUDA_VISIBLE_DEVICES=0,1,2 RANKS=3,4,5",
    ]


def test_cores_are_shared_out():
    lines = exported(job_of(Mapping(dp=4, edp=4), cluster(2, 2), cores_per_host=64), "rankfile")["rankfile"]
    assert lines.splitlines()[:2] == ["rank 0=l00 slot=0-31", "rank 1=l00 slot=32-63"]
    with pytest.raises(InputError, match="fewer than the 2 ranks"):
        exported(job_of(Mapping(dp=4, edp=4), cluster(2, 2), cores_per_host=1), "rankfile")


def test_larger_units_are_parted_into_hosts():
    topology = cluster(8, 2)
    placed = placed_of(Mapping(tp=8, dp=2, ep=16), topology)
    hosts = hosts_of(placed, topology, 4)
    assert [host.name for host in hosts] == ["l00-0", "l00-1", "l01-0", "l01-1"]
    assert hosts[1].ranks == (4, 5, 6, 7) and hosts[1].devices == (0, 1, 2, 3)


def test_names_of_ones_own():
    topology = cluster(2, 2)
    hosts = hosts_of(placed_of(Mapping(dp=4, edp=4), topology), topology)
    assert [host.name for host in named(hosts, "# rack 1\nn7\n\nn9 # slow fan\n", "hosts.txt")] == ["n7", "n9"]
    with pytest.raises(InputError, match="has 1 names; the placement uses 2 hosts, from l00 to l01"):
        named(hosts, "n7\n", "hosts.txt")
    with pytest.raises(InputError, match="'n7' twice"):
        named(hosts, "n7\nn7\n", "hosts.txt")
    with pytest.raises(InputError, match="is not a host name"):
        named(hosts, "n7 n8\nn9\n", "hosts.txt")


@given(placements())
@settings(deadline=None, max_examples=200)
def test_files_give_the_groups_of_the_placement(drawn):
    """Read from the files alone, the groups of every axis stand on the same devices, or the format refuses."""
    topology, mapping, _ = drawn
    job = job_of(mapping, topology)
    seats = job.seats
    ours = {axis: {frozenset(seats[rank] for rank in group) for group in job.placed.groups[axis]} for axis in SIZES}
    for format_, export in EXPORTS.items():
        try:
            launched = export.read(exported(job, format_))
        except InputError:
            assert format_ in ("megatron", "torchrun")
            continue
        groups = launched.groups or job.placed.groups
        for axis in SIZES:
            theirs = {frozenset(launched.seats[rank] for rank in group) for group in groups[axis]}
            assert theirs == ours[axis], (format_, axis)


@pytest.mark.parametrize("format_", EXPORTS)
def test_a_file_with_two_ranks_exchanged_is_noticed(format_):
    job = job_of(Mapping(tp=2, dp=4, ep=8), cluster(4, 2))
    launched = EXPORTS[format_].read(exported(job, format_))
    launched.seats[0], launched.seats[7] = launched.seats[7], launched.seats[0]
    with pytest.raises(RuntimeError, match="than the placement"):
        checked(job, format_, launched)


def test_our_rank_groups_are_those_of_the_arguments():
    rng = random.Random(7)
    for _ in range(50):
        tp, cp, dp, pp = (rng.choice([1, 2, 3, 4]) for _ in range(4))
        etp = rng.choice([n for n in range(1, tp * cp * dp + 1) if tp * cp * dp % n == 0])
        ep = rng.choice([n for n in range(1, tp * cp * dp // etp + 1) if tp * cp * dp // etp % n == 0])
        sizes = {"tp": tp, "cp": cp, "dp": dp, "pp": pp, "etp": etp, "ep": ep, "edp": tp * cp * dp // etp // ep}
        text = f"--tensor-model-parallel-size {tp} --context-parallel-size {cp} --pipeline-model-parallel-size {pp} "
        text += f"--expert-model-parallel-size {ep} --expert-tensor-parallel-size {etp}"
        theirs = groups_of_arguments(text, tp * cp * dp * pp)
        ours = rank_groups(sizes)
        for axis in SIZES:
            assert sorted(map(tuple, theirs[axis])) == sorted(map(tuple, ours[axis].tolist())), axis


def written(files, folder):
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def shell(script, *arguments, path=None, **environment):
    """Run a script with only these variables, and with fake programs first on the path."""
    search = f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"]
    found = subprocess.run(
        ["sh", str(script), *arguments], env={"PATH": search, **environment}, capture_output=True, text=True, check=True
    )
    return found.stdout


def fake(folder, name, body):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def swapped_job():
    """Two hosts of two; TP runs over the hosts, so that ranks 0, 2 are on the first and 1, 3 on the second."""
    placement = {"tp": {"l1": 2}, "dp": {"l0": 2}, "etp": {"l1": 2}, "edp": {"l0": 2}}
    return job_of(Mapping(tp=2, dp=2, etp=2, edp=2, placement=placement), cluster(2, 2))


def test_a_slurm_task_gets_its_devices_and_its_rank(tmp_path):
    """srun sets the node's name, the task's number and its local number; the scripts make torch's variables of them."""
    folder = written(exported(swapped_job(), "slurm"), tmp_path)
    told = {"SLURMD_NODENAME": "l01", "SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1"}
    show = 'echo "$CUDA_VISIBLE_DEVICES $RANK $WORLD_SIZE $LOCAL_RANK"'
    assert shell(folder / "task.sh", "sh", "-c", show, **told) == "0,1 3 4 1\n"
    fake(tmp_path, "srun", 'echo "$SLURM_HOSTFILE" "$@"')
    started = shell(folder / "launch.sh", "python", "train.py", path=tmp_path).split()
    assert started[1:4] == ["--distribution=arbitrary", "--nodes=2", "--ntasks=4"]
    assert Path(started[0]).read_text().split() == ["l00", "l01", "l00", "l01"]
    assert started[-2:] == ["python", "train.py"]


def test_an_mpi_rank_gets_its_devices(tmp_path):
    folder = written(exported(swapped_job(), "rankfile"), tmp_path)
    told = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}
    show = 'echo "$CUDA_VISIBLE_DEVICES $RANK $WORLD_SIZE $LOCAL_RANK"'
    assert shell(folder / "task.sh", "sh", "-c", show, MAPSEARCH_HOST="l00", **told) == "0,1 2 4 1\n"
    fake(tmp_path, "mpirun", 'echo "$@"')
    started = shell(folder / "launch.sh", "python", "train.py", path=tmp_path)
    assert f"-np 4 --map-by rankfile:file={folder}/rankfile" in started


def test_torchrun_is_told_its_node_rank(tmp_path):
    folder = written(exported(job_of(Mapping(tp=2, dp=2, etp=2, edp=2), cluster(2, 2)), "torchrun"), tmp_path)
    fake(tmp_path, "torchrun", 'echo "$CUDA_VISIBLE_DEVICES" "$@"')
    started = shell(folder / "launch.sh", "train.py", path=tmp_path, MAPSEARCH_HOST="l01")
    assert started.split() == [
        "0,1", "--nnodes=2", "--nproc-per-node=2", "--node-rank=1", "--master-addr=l00", "--master-port=29500",
        "train.py",
    ]  # fmt: skip


def test_rails_stay_rails():
    """Ranks that differ on an outer level only have the same device number on their hosts."""
    job = job_of(Mapping(tp=4, dp=2, pp=3, ep=8), cluster(4, 2, 3))
    for axis in ("dp", "pp"):
        for group in job.placed.groups[axis].tolist():
            assert len({job.seats[rank][1] for rank in group}) == 1
