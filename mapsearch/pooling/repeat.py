"""Folders of `rollout -o DIR/`: what is in them, and solving them again.

Contents: pool_files, reproduce_pools.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from mapsearch import documents
from mapsearch.inputs import read_inputs
from mapsearch.pooled import TwoPools
from mapsearch.pooling.answers import pools_of
from mapsearch.pooling.api import rollout
from mapsearch.progress import Progress
from mapsearch.records import Inventory
from mapsearch.reproducing.bundle import FILES, Bundle, bundle_files
from mapsearch.reproducing.repeat import Solving, Watch, reproduce
from mapsearch.reproduction import Reproduction
from mapsearch.topologies import load_topology

ASIDE = ("provenance", "notes", "model", "run", "topology", "rollout", "offers", "mappings", "interrupted")
"""Parts of an answer that say how it was found or what its inputs are called, not what it is."""


def pool_files(answer: TwoPools, profile: str | None, options: dict[str, Any]) -> dict[str, str]:
    """Text of every file of the folder of an answer; a cluster and a profile of the rollout pool's own are in it.

    Raises InputError when an input cannot be read any more.
    """
    about, pools = answer.provenance, pools_of(answer)
    inputs = read_inputs(about.model, about.run, load_topology(about.topology), profile, None)
    held: dict[str, Any] = {named.kind: named.record for named in inputs.named}
    # As it was before it was scaled: the number of devices is an option.
    held["topology"] = load_topology(about.topology)
    held["rollout"] = pools.rollout
    if pools.own is not None:
        own = pools.rollout.pool.model_copy(
            update={"topology": FILES["pool_topology"], "profile": FILES["pool_profile"]}
        )
        held["rollout"] = pools.rollout.model_copy(update={"pool": own})
        held |= {"pool_topology": pools.own, "pool_profile": pools.part(0).serving.profile}
    return bundle_files(answer, held, options)


def reproduce_pools(folder: str, *, progress: Watch | None = None) -> Reproduction:
    """Solve a folder of two pools again, and hold the answer against the locked one. Raises MapsearchError."""
    return reproduce(folder, progress=progress, solving=Solving(solve=_solved, plain=_plain, step_s=_step_s))


def _solved(bundle: Bundle, inputs: dict[str, Inventory], progress: Watch | None) -> TwoPools:
    told: dict[str, Any] = {name: value for name, value in bundle.lock.options.items() if value is not None}
    serving: Any = inputs["rollout"]
    with tempfile.TemporaryDirectory() as scratch:
        if "pool_topology" in inputs:
            # A rollout names its cluster by file: the documents that are asked about are written to some.
            paths = {kind: Path(scratch) / FILES[kind] for kind in ("pool_topology", "pool_profile")}
            for kind, path in paths.items():
                path.write_text(documents.dump(inputs[kind].model_dump(mode="json")), encoding="utf-8")
            own = {"topology": str(paths["pool_topology"]), "profile": str(paths["pool_profile"])}
            serving = serving.model_copy(update={"pool": serving.pool.model_copy(update=own)})
        return rollout(
            inputs["model"],  # type: ignore[arg-type]
            inputs["run"],  # type: ignore[arg-type]
            inputs["topology"],  # type: ignore[arg-type]
            rollout=serving,
            profile=inputs["profile"],  # type: ignore[arg-type]
            told=None if progress is None else _telling(progress),
            **told,
        )


def _telling(progress: Watch) -> Any:
    return lambda done, count, _best_s: progress(Progress(f"division {done + 1} of {count}"))


def _plain(answer: dict[str, Any]) -> dict[str, Any]:
    """What an answer is; of the training side by itself its mappings."""
    kept = {name: value for name, value in answer.items() if name not in ASIDE}
    training = kept.get("training")
    return {**kept, "training": training["mappings"] if training else training}


def _step_s(answer: dict[str, Any]) -> float | None:
    return answer["steady"]["step_s"] if answer["steady"] else None
