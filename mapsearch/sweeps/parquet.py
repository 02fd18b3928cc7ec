"""Results as a Parquet file: one row per item in the sweep's order; the only module that imports pyarrow.

Contents: available, write_parquet.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mapsearch.errors import BackendMissing
from mapsearch.sweeps.record import SweepItem

_TEXTS = ("key", "status", "proof", "proof_backend", "proof_kind", "binding")
_NUMBERS = (
    "step_time_s", "tokens_per_s", "mfu", "bound_s", "gap", "peak_memory_bytes", "memory_limit_bytes",
    "exposed_fraction",
)  # fmt: skip
_SIZES = ("tp", "cp", "dp", "pp", "etp", "ep", "edp", "vpp", "micro_batch", "zero")
_CHOICES = ("schedule", "recompute", "offload", "cp_kind", "dispatcher", "overlap")
_JSON = ("placement", "layout", "breakdown_s", "memory_bytes", "conflict", "alternatives", "notes", "proofs")


def available() -> bool:
    """Whether pyarrow is installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        return False
    return True


def write_parquet(path: Path, records: Sequence[tuple[int, SweepItem]]) -> None:
    """Write numbered records, in one step; wall times are left out, so that equal results give equal bytes.

    Settings become columns named as they are: numbers where all values are, else text (JSON for lists). Raises
    BackendMissing without pyarrow.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise BackendMissing("pyarrow is not installed; pip install 'mapsearch[sweep]'") from None
    columns: dict[str, Any] = {"item": pyarrow.array([number for number, _ in records], pyarrow.int64())}
    settings = dict.fromkeys(name for _, record in records for name in record.settings)
    for name in settings:
        columns[f"setting.{name}"] = _setting(pyarrow, [record.settings.get(name) for _, record in records])
    found = [record for _, record in records]
    text, number, whole = pyarrow.string(), pyarrow.float64(), pyarrow.int64()
    for name in _TEXTS:
        columns[name] = pyarrow.array([getattr(record, name) for record in found], text)
    for name in _NUMBERS:
        columns[name] = pyarrow.array([getattr(record, name) for record in found], number)
    columns["certified"] = pyarrow.array([record.certified for record in found], pyarrow.bool_())
    for name in ("devices", "recompute_stages"):
        columns[name] = pyarrow.array([getattr(record, name) for record in found], whole)
    columns |= {name: pyarrow.array([record.sizes.get(name) for record in found], whole) for name in _SIZES}
    columns |= {name: pyarrow.array([record.choices.get(name) for record in found], text) for name in _CHOICES}
    columns |= {name: pyarrow.array([_json(getattr(record, name)) for record in found], text) for name in _JSON}
    columns["error_kind"] = pyarrow.array([record.error.kind if record.error else None for record in found], text)
    columns["error"] = pyarrow.array([record.error.message if record.error else None for record in found], text)
    new = path.with_name(f"{path.name}.new")
    parquet.write_table(pyarrow.table(columns), new)
    os.replace(new, path)


def _setting(pyarrow: Any, values: list[Any]) -> Any:
    given = [value for value in values if value is not None]
    kinds = {type(value) for value in given}
    if kinds and kinds <= {bool}:
        return pyarrow.array(values, pyarrow.bool_())
    if kinds and kinds <= {int} and all(abs(value) < 2**63 for value in given):
        return pyarrow.array(values, pyarrow.int64())
    if kinds and kinds <= {int, float}:
        return pyarrow.array([None if value is None else float(value) for value in values], pyarrow.float64())
    return pyarrow.array(
        [value if value is None or isinstance(value, str) else _json(value) for value in values], pyarrow.string()
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
