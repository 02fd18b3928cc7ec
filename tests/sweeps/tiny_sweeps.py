"""Sweeps so small that an item takes a tenth of a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MODEL = (
    "{name: tiny, layers: 4, hidden: 256, heads: 8, kv_heads: 4, head_dim: 32, ffn: 512, vocab: 1024,\n"
    " moe: {experts: 8, top_k: 2, expert_ffn: 256}}\n"
)
RUN = (
    "{name: tiny, sequence_length: 512, global_batch: 8, framework: none, micro_batch: [1], vpp: [1],\n"
    " schedule: [1f1b], recompute: [none], zero: [1], cp_kind: [ring], dispatcher: [all-to-all]}\n"
)
BASE = {"model": "model.yaml", "run": "run.yaml", "topology": "asic-8", "proof": "none"}


class Folder:
    """A folder with a tiny model and run, into which sweeps are written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.out = path / "out"
        (path / "model.yaml").write_text(MODEL)
        (path / "run.yaml").write_text(RUN)

    def sweep(self, **parts: Any) -> Path:
        """A sweep file with these parts over the tiny base."""
        file = self.path / "sweep.yaml"
        file.write_text(yaml.safe_dump({"name": "try", "base": BASE, **parts}, sort_keys=False))
        return file

    def lines(self) -> list[str]:
        """Whole lines of the results."""
        file = self.out / "results.jsonl"
        return file.read_text().splitlines() if file.exists() else []
