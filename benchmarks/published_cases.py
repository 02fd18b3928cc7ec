"""Published measured runs as cases: all of them ran, so a case that is refused is wrong.

Contents: published_cases, refusals.

Only what the schema of a case has is taken over: a row's release, options and layout stay behind. Rows on devices that
cases do not know, of LoRA, and of layers other than attention and FFN are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mapsearch.calibration.frameworks import family_of
from mapsearch.calibration.rows import read_rows
from mapsearch.inventories.case import Case
from mapsearch.judging.judge import judge

PUBLISHED = Path(__file__).parent / "published"
LEFT_OUT = ("TPU", "Train", "Gaudi", "MI")
SOURCES = {
    "fsdp": "a repository with fsdp",
    "mindspeed": "github.com/Ascend/MindSpeed",
    "maxtext": "",
    "other": "",
    "internevo": "",
}
"""Family of a row: the source that a report of it would have; Megatron-Bridge's for the Megatron family."""
DEGREES = ("tp", "pp", "cp", "ep", "etp", "vpp")


def published_cases() -> Iterator[tuple[str, Case]]:
    """Every row that a case can say, with its name."""
    rows, _ = read_rows(PUBLISHED)
    for row in rows:
        model, hardware = row["model"], row["hardware"]
        hybrid = str(model.get("arch")).startswith("hybrid")
        if row["workload"] != "pretrain" or hybrid or str(hardware["device"]).startswith(LEFT_OUT):
            continue
        yield str(row["id"]), Case.model_validate(_case(row))


def _case(row: dict[str, Any]) -> dict[str, Any]:
    model, hardware, mapping, batch = row["model"], row["hardware"], row["mapping"], row["batch"]
    name = str(row["id"])
    own = "github.com/pytorch/torchtitan" if name.startswith("torchtitan") else ""
    own = "github.com/NVIDIA-NeMo/Automodel" if name.startswith("nemo_automodel") else own
    shape = {key: model.get(key) for key in ("layers", "hidden", "heads", "kv_heads", "experts", "ffn", "expert_ffn")}
    vocabulary = model.get("vocab") if isinstance(model.get("vocab"), int) else None
    return {
        "source": own or SOURCES.get(family_of(row), "github.com/NVIDIA-NeMo/Megatron-Bridge"),
        "model": {"name": str(model["name"]), "topk": model.get("top_k"), "vocab": vocabulary, **shape},
        "hardware": {
            "gpu": str(hardware["device"]),
            "gpus": hardware["devices"],
            "gpus_per_node": hardware.get("devices_per_node"),
        },
        "mapping": {key: mapping.get(key) for key in DEGREES} | {"zero": mapping.get("zero_stage")},
        "run": {
            "seq": model.get("seq_len"),
            "micro_batch": batch.get("micro_batch"),
            "precision": str(row["precision"]).split("_")[0],
            "distributed_optimizer": True,
            "recompute": _recompute(row["recompute"]),
        },
    }


def _recompute(said: Any) -> str | None:
    record = said if isinstance(said, dict) else {"mode": said}
    mode = str(record.get("mode") or "unknown")
    if mode.startswith(("unknown", "not")):
        return None
    return f"{mode} {record.get('modules') or ''}".strip()


def refusals() -> dict[str, Any]:
    """How many of them are judged infeasible or out of memory, by relation and source."""
    words: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for name, case in published_cases():
        found = judge(case, name=name, tries=False)
        words[found.verdict] += 1
        if found.verdict in ("infeasible", "out of memory"):
            refused[f"{name.split('/')[0]}: {found.verdict}, {found.relation}"] += 1
    return {"n": sum(words.values()), "verdicts": dict(words), "refused": dict(refused.most_common())}
