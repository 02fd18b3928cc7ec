"""Files for launchers, each read again and held against the placement before it is handed out.

Contents: EXPORTS, Export, Job, exported.
"""

from __future__ import annotations

from mapsearch.placing.exports import megatron, nccl, rankfile, slurm, torchrun
from mapsearch.placing.exports.job import Export, Job, checked

EXPORTS: dict[str, Export] = {
    "megatron": megatron.EXPORT,
    "torchrun": torchrun.EXPORT,
    "slurm": slurm.EXPORT,
    "rankfile": rankfile.EXPORT,
    "nccl": nccl.EXPORT,
}
"""Format: how it is written and read."""


def exported(job: Job, format_: str) -> dict[str, str]:
    """Files by name. Raises InputError when the launcher cannot give the placement."""
    export = EXPORTS[format_]
    files = export.write(job)
    checked(job, format_, export.read(files))
    return files
