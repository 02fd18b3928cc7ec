"""Megatron-LM: arguments that make the groups, and a launch that gives every rank its device.

Contents: EXPORT, groups_of_arguments.

Megatron-LM counts ranks in the order tp-cp-ep-dp-pp, or tp-cp-ep-pp-dp with --use-tp-pp-dp-mapping; the expert grid
counts ETP, EP, EDP in the same order. The pipeline groups of both grids must be equal, so the second order needs
EDP = DP or PP = 1. Source: Megatron-LM, initialize_model_parallel and RankGenerator; FORMULAS 5.1.
"""

from __future__ import annotations

import numpy as np

from mapsearch.axes import SIZES
from mapsearch.errors import InputError
from mapsearch.placing.exports import slurm, torchrun
from mapsearch.placing.exports.job import Export, Files, Job, Launched, consecutive
from mapsearch.placing.placed import rank_groups

_FLAGS = {
    "tp": "--tensor-model-parallel-size",
    "cp": "--context-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "ep": "--expert-model-parallel-size",
    "etp": "--expert-tensor-parallel-size",
}
_SWAP = "--use-tp-pp-dp-mapping"


def groups_of_arguments(text: str, ranks: int) -> dict[str, list[list[int]]]:
    """The groups that Megatron-LM makes of its arguments, for so many ranks.

    Both grids are boxes of ranks in the order of axes; a group is what is left when all other axes are held fixed.
    """
    words = text.split()
    sizes = {axis: int(words[words.index(flag) + 1]) for axis, flag in _FLAGS.items()}
    sizes["dp"] = ranks // (sizes["tp"] * sizes["cp"] * sizes["pp"])
    sizes["edp"] = ranks // (sizes["etp"] * sizes["ep"] * sizes["pp"])
    last = ("pp", "dp") if _SWAP in words else ("dp", "pp")
    groups: dict[str, list[list[int]]] = {}
    for names in (("etp", "ep", *({"dp": "edp"}.get(axis, axis) for axis in last)), ("tp", "cp", *last)):
        box = np.arange(ranks).reshape([sizes[axis] for axis in reversed(names)])
        for axis in names:
            table = np.moveaxis(box, len(names) - 1 - names.index(axis), -1).reshape(-1, sizes[axis])
            groups[axis] = table.tolist()
    return groups


def _write(job: Job) -> Files:
    """args.txt, and torchrun's files or, where ranks of a host are not consecutive, Slurm's. Raises InputError."""
    _refuse_other_groups(job)
    sizes = job.placed.sizes
    ranks = np.arange(len(job.placed.devices))
    arguments = "".join(f"{flag} {sizes[axis]}\n" for axis, flag in _FLAGS.items())
    # The other order first counts PP, then DP: the same groups under other numbers.
    inner = sizes["tp"] * sizes["cp"]
    stage, replica = ranks // (inner * sizes["dp"]), ranks // inner % sizes["dp"]
    swapped = ranks % inner + inner * (stage + sizes["pp"] * replica)
    try:
        return {"args.txt": arguments, **torchrun.write_hosts(consecutive(job, ranks, "torchrun"))}
    except InputError:
        if sizes["edp"] == sizes["dp"] and sizes["pp"] > 1:
            try:
                hosts = consecutive(job, swapped, "torchrun")
                return {"args.txt": f"{arguments}{_SWAP}\n", **torchrun.write_hosts(hosts)}
            except InputError:
                pass
    return {"args.txt": arguments, **slurm.write(job)}


def _refuse_other_groups(job: Job) -> None:
    """Raise InputError where no numbering of ranks that Megatron-LM knows makes the groups of the placement."""
    wanted = rank_groups(job.placed.sizes)
    for axis in SIZES:
        ours = job.placed.groups[axis]
        if not np.array_equal(ours, wanted[axis]):
            row = int(np.flatnonzero((ours != wanted[axis]).any(axis=1))[0])
            here, there = (", ".join(map(str, table[row, :4].tolist())) for table in (ours, wanted[axis]))
            raise InputError(
                f"Megatron-LM counts ranks tp-cp-ep-dp-pp and cannot give this placement: its {axis.upper()} group "
                f"{row} is ranks {there}, .. where the placement needs {here}, ..; export json or slurm for a launcher "
                "that takes groups, or fix the placement of that axis and solve again"
            )


def _read(files: Files) -> Launched:
    seats = torchrun.read_hosts(files) if "hostfile" in files else slurm.read(files).seats
    return Launched(seats, groups_of_arguments(files["args.txt"], len(seats)))


EXPORT = Export(_write, _read)
