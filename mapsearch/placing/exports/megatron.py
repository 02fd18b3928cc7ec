"""Megatron-LM: arguments that make the groups, and a launch that gives every rank its device.

Contents: EXPORT, groups_of_arguments.

Megatron-LM counts ranks in the order tp-cp-ep-dp-pp, or tp-cp-ep-pp-dp with --use-tp-pp-dp-mapping; the expert grid
counts ETP, EP, EDP in the same order. The pipeline groups of both grids must be equal, so the second order needs
EDP = DP or PP = 1. Any other order is an argument of initialize_model_parallel only, and no flag.
Source: Megatron-LM, initialize_model_parallel and RankGenerator; FORMULAS 5.1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mapsearch.errors import InputError
from mapsearch.placing.digits import USUAL_ORDER
from mapsearch.placing.exports import slurm, torchrun
from mapsearch.placing.exports.job import Export, Files, Job, Launched, consecutive

Ints = NDArray[np.int64]

_FLAGS = {
    "tp": "--tensor-model-parallel-size",
    "cp": "--context-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "ep": "--expert-model-parallel-size",
    "etp": "--expert-tensor-parallel-size",
}
_SWAP = "--use-tp-pp-dp-mapping"
_SWAPPED_ORDER = "tp-cp-ep-pp-dp"
_ORDER = """%s
# The order above is no flag of Megatron-LM: pass it as order="%s" where megatron/training/initialize.py
# calls initialize_model_parallel (or where your own code does).
"""


def groups_of_arguments(text: str, ranks: int, order: str = "") -> dict[str, list[list[int]]]:
    """The groups that Megatron-LM makes of its arguments, for so many ranks; `order`: where it is given in code.

    Both grids are boxes of ranks in the order of axes; a group is what is left when all other axes are held fixed.
    """
    words = text.split()
    sizes = {axis: int(words[words.index(flag) + 1]) for axis, flag in _FLAGS.items()}
    sizes["dp"] = ranks // (sizes["tp"] * sizes["cp"] * sizes["pp"])
    sizes["edp"] = ranks // (sizes["etp"] * sizes["ep"] * sizes["pp"])
    tokens = (order or (_SWAPPED_ORDER if _SWAP in words else USUAL_ORDER)).split("-")
    groups: dict[str, list[list[int]]] = {}
    for own, absent in (({"tp": "etp", "dp": "edp"}, "cp"), ({}, "ep")):
        names = [own.get(token, token) for token in tokens if token != absent]
        box = np.arange(ranks).reshape([sizes[axis] for axis in reversed(names)])
        for axis in names:
            table = np.moveaxis(box, len(names) - 1 - names.index(axis), -1).reshape(-1, sizes[axis])
            groups[axis] = table.tolist()
    return groups


def _write(job: Job) -> Files:
    """args.txt, order.txt where the order is no flag, and torchrun's files, or Slurm's where torchrun cannot number so.

    Raises InputError.
    """
    placed = job.placed
    if not placed.counted:
        raise InputError(
            "Megatron-LM counts ranks through both grids in one order of axes, and none gives the groups of this "
            "placement; export json or slurm for a frame that takes groups, or place an axis otherwise and solve again"
        )
    arguments = "".join(f"{flag} {placed.sizes[axis]}\n" for axis, flag in _FLAGS.items())
    files = {"args.txt": arguments}
    if placed.order != USUAL_ORDER:
        files["order.txt"] = _ORDER % (placed.order, placed.order)
    for number, flag in _numberings(job):
        try:
            return {**files, "args.txt": arguments + flag, **torchrun.write_hosts(consecutive(job, number, "torchrun"))}
        except InputError:
            continue
    return {**files, **slurm.write(job)}


def _numberings(job: Job) -> Iterator[tuple[Ints, str]]:
    """Megatron-LM's rank of each rank of the placement, and the flag that it takes."""
    sizes, ranks = job.placed.sizes, np.arange(len(job.placed.devices))
    yield ranks, ""
    if job.placed.order == USUAL_ORDER and sizes["edp"] == sizes["dp"]:
        # PP before DP: the same groups under other numbers.
        inner = sizes["tp"] * sizes["cp"]
        stage, replica = ranks // (inner * sizes["dp"]), ranks // inner % sizes["dp"]
        yield ranks % inner + inner * (stage + sizes["pp"] * replica), f"{_SWAP}\n"


def _read(files: Files) -> Launched:
    seats = torchrun.read_hosts(files) if "hostfile" in files else slurm.read(files).seats
    order = files.get("order.txt", "").split("\n")[0]
    return Launched(seats, groups_of_arguments(files["args.txt"], len(seats), order))


EXPORT = Export(_write, _read)
