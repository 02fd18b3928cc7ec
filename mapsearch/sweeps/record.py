"""What is known of one item when it has run: one line of results.jsonl.

Contents: SCHEMA, ItemStatus, ItemError, SweepItem, of_answer, failed.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mapsearch.answer import Answer, Proof, RankedMapping, row

SCHEMA = "mapsearch.sweep/1"
ItemStatus = Literal["optimal", "feasible", "infeasible", "unknown", "failed"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class ItemError(_Record):
    """Why an item has no result."""

    kind: str
    """`InputError` and its like for what a user can mend, `time limit`, `worker died`, `proof disagrees`, or a bug."""
    message: str
    traceback: str = ""
    """Of a bug only."""


class SweepItem(_Record):
    """One item with its result, in SI units; the figures are those of its fastest mapping."""

    schema_: str = Field(default=SCHEMA, alias="schema")
    key: str
    """SHA-256 of the item's inputs, options and the version of mapsearch."""
    settings: dict[str, Any]
    """The item's settings as written when it ran."""
    status: ItemStatus
    """As of `solve`; `unknown` and `failed` have an error."""
    step_time_s: float | None = None
    tokens_per_s: float | None = None
    mfu: float | None = None
    devices: int | None = None
    """Devices that the mapping uses."""
    sizes: dict[str, int] = {}
    choices: dict[str, str] = {}
    placement: dict[str, dict[str, int]] = {}
    layout: list[int] = []
    recompute_stages: int = 0
    bound_s: float | None = None
    gap: float | None = None
    proof: Literal["proven", "not proven", "disagrees", "none"] = "none"
    proof_backend: str = ""
    proof_kind: str = ""
    certified: bool = False
    """With `certify`: whether each backend that was asked has proven the ranking."""
    proofs: list[dict[str, Any]] = []
    """With `certify`: what each backend says, and the decomposition, as in the answer."""
    peak_memory_bytes: float | None = None
    memory_limit_bytes: float | None = None
    exposed_fraction: float | None = None
    breakdown_s: dict[str, float] = {}
    memory_bytes: dict[str, float] = {}
    binding: str = ""
    """What to change for a faster mapping: `HBM per device +6.1 GB`."""
    conflict: list[str] = []
    """Why nothing fits."""
    alternatives: list[dict[str, Any]] = []
    """The mappings after the first, when `top` asks for more."""
    notes: list[str] = []
    error: ItemError | None = None
    timings_s: dict[str, float] = {}
    """Wall times: the one part that differs when the same item runs again."""

    @property
    def done(self) -> bool:
        """Whether the item has a result: a mapping, or the proof that none fits."""
        return self.error is None

    def to_line(self) -> str:
        """One line of JSON."""
        return self.model_dump_json(by_alias=True) + "\n"


def of_answer(key: str, settings: dict[str, Any], answer: Answer, wall_s: float) -> SweepItem:
    """The record of an item that was searched."""
    error = None
    if answer.status == "unknown":
        disagrees = any(proof.status == "disagrees" for proof in answer.proofs)
        kind = "proof disagrees" if disagrees else "time limit"
        error = ItemError(kind=kind, message=answer.notes[-1] if answer.notes else "stopped without a mapping")
    return SweepItem(
        key=key,
        settings=settings,
        status=answer.status,
        bound_s=answer.bound_s,
        gap=answer.gap,
        conflict=[sentence for conflict in answer.conflicts for sentence in conflict.sentences],
        alternatives=[row(mapping) for mapping in answer.mappings[1:]],
        notes=answer.notes,
        error=error,
        timings_s={**answer.timings_s, "wall": wall_s},
        **_proof(answer.proofs),
        **(_certificate(answer.proofs) if settings.get("certify") else {}),
        **(_figures(answer.mappings[0]) if answer.mappings else {}),
    )


def failed(key: str, settings: dict[str, Any], kind: str, message: str, traceback: str = "") -> SweepItem:
    """The record of an item without a result."""
    error = ItemError(kind=kind, message=message, traceback=traceback)
    return SweepItem(key=key, settings=settings, status="failed", error=error)


def _proof(proofs: list[Proof]) -> dict[str, Any]:
    """The proof that decides the status: one that disagrees, else one that proves, else the last."""
    if not proofs:
        return {}
    order = ("disagrees", "proven", "not proven", "exact")
    best = min(proofs, key=lambda proof: order.index(proof.status))
    status = "none" if best.status == "exact" else best.status
    return {"proof": status, "proof_backend": best.backend, "proof_kind": best.kind}


def _certificate(proofs: list[Proof]) -> dict[str, Any]:
    """What all backends say; the decomposition's own statement certifies nothing."""
    others = [proof.status for proof in proofs if proof.status != "exact"]
    certified = bool(others) and all(status == "proven" for status in others)
    return {"certified": certified, "proofs": [proof.model_dump() for proof in proofs]}


def _figures(best: RankedMapping) -> dict[str, Any]:
    names = (
        "step_time_s", "tokens_per_s", "mfu", "devices", "sizes", "choices", "placement", "layout", "recompute_stages",
        "peak_memory_bytes", "memory_limit_bytes", "exposed_fraction", "breakdown_s", "memory_bytes",
    )  # fmt: skip
    lever = best.binding.lever if best.binding else ""
    return {**{name: getattr(best, name) for name in names}, "binding": lever}
