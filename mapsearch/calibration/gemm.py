"""Timings of matrix products, and the saturation curve that fits them.

Contents: Timing, GemmFit, read_timings, fit_saturation.

`m` are the rows (tokens), `n` and `k` outputs and inputs: `2 m n k` FLOP. The curve is the one that the cost model
evaluates (`costs.kernels.saturated`), whose columns are the narrower of n and k.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mapsearch import documents
from mapsearch.calibration.robust import Robust, robust_fit
from mapsearch.costs.kernels import saturated
from mapsearch.errors import InputError, listed, near_miss
from mapsearch.inventories.profile import Saturation
from mapsearch.quantity import Floats
from mapsearch.units import FLOPS, TIME, Dimension, parse

_SECONDS = {"s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3, "us": 1e-6,
            "µs": 1e-6, "usec": 1e-6, "ns": 1e-9}  # fmt: skip
_RATES = {"tflops": 1e12, "tflop": 1e12, "gflops": 1e9, "gflop": 1e9, "pflops": 1e15, "flops": 1.0, "flop": 1.0}
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32", "e4m3": "fp8",
           "fp8_e4m3": "fp8", "float8_e4m3fn": "fp8"}  # fmt: skip
_ALIASES = {"m": "m", "n": "n", "k": "k", "rows": "m", "tokens": "m", "outputs": "n", "inputs": "k", "dtype": "dtype",
            "type": "dtype", "precision": "dtype", "batch": "batch", "groups": "batch"}  # fmt: skip
_MOST_ROWS = 100_000
_ABOVE_PEAK = 1.02
"""A clock or a rounded peak may put a kernel this far above the datasheet; more is a wrong unit or a wrong peak."""
_TOO_SLOW = 2e-3
"""Share of the peak that the best of large products cannot miss: below it, the unit is in doubt."""
_LARGE = 512
_DISAGREE = 0.05
_TOLD = 0.5


@dataclass(frozen=True)
class Timing:
    """One measured product."""

    place: str
    """Line or entry of the file."""
    m: int
    n: int
    k: int
    dtype: str
    seconds: float
    batch: int = 1

    @property
    def flops_per_s(self) -> float:
        """Rate that was reached."""
        return 2.0 * self.m * self.n * self.k * self.batch / self.seconds


@dataclass(frozen=True)
class GemmFit:
    """A saturation curve, how well it fits, and what the timings cannot tell."""

    file: str
    dtype: str
    rows: int
    curve: Saturation
    residual: float
    """Median relative residual, absolute."""
    percentile_90: float
    worst: float
    worst_place: str
    best_share: float
    notes: tuple[str, ...]


def read_timings(path: Path | str) -> list[Timing]:
    """Timings of a CSV (with a header) or YAML file. Raises InputError naming the line and field."""
    file = str(path)
    if file.lower().endswith((".yaml", ".yml", ".json")):
        entries = _yaml_entries(documents.load(path), file)
    else:
        entries = _csv_entries(documents.read_text(path), file)
    found = [_timing(entry, place, file) for place, entry in entries]
    if not found:
        raise InputError("has no timings; write columns m, n, k, dtype and time_us (or tflops)", file=file)
    return found


def _yaml_entries(document: Any, file: str) -> list[tuple[str, dict[str, Any]]]:
    if isinstance(document, dict):
        document = next((document[key] for key in ("gemm", "rows", "timings") if key in document), document)
    if not isinstance(document, list) or not all(isinstance(entry, dict) for entry in document):
        raise InputError("is not a list of timings; write entries such as {m: 4096, n: 4096, k: 4096, dtype: bf16, "
                         "time: 200 us}", file=file)  # fmt: skip
    return [(f"entry {at}", {str(key): value for key, value in e.items()}) for at, e in enumerate(document, start=1)]


def _csv_entries(text: str, file: str) -> list[tuple[str, dict[str, Any]]]:
    lines = [
        (at, line) for at, line in enumerate(text.splitlines(), start=1) if line.strip() and line.lstrip()[0] != "#"
    ]
    if not lines:
        raise InputError("has no lines but comments", file=file)
    first = lines[0][1]
    mark = next((mark for mark in (",", ";", "\t") if mark in first), None)
    entries = []
    header = _split(first, mark)
    for at, line in lines[1 : _MOST_ROWS + 1]:
        words = _split(line, mark)
        if len(words) != len(header):
            raise InputError(
                f"has {len(words)} values where the header names {len(header)}", file=file, field=f"line {at}"
            )
        entries.append((f"line {at}", dict(zip(header, words, strict=True))))
    return entries


def _split(line: str, mark: str | None) -> list[str]:
    if mark is None:
        return line.split()
    try:
        return [word.strip() for word in next(csv.reader([line], delimiter=mark))]
    except (csv.Error, StopIteration):
        return line.split(mark)


def _column(name: str) -> tuple[str, float]:
    """What a column holds, and its factor to SI: m, n, k, dtype, batch, time, rate; 0.0 when the unit is not said."""
    plain = name.strip().lower()
    if plain in _ALIASES:
        return _ALIASES[plain], 1.0
    words = [word for word in re.split(r"[\s_()\[\]/.-]+", plain) if word]
    if words and (words[-1] in _RATES or (words[-1] == "s" and len(words) > 1 and words[-2] in _RATES)):
        return "rate", _RATES[words[-1]] if words[-1] in _RATES else _RATES[words[-2]]
    if words and words[-1] in _SECONDS:
        return "time", _SECONDS[words[-1]]
    if words and words[0] in ("time", "duration", "latency", "elapsed", "runtime"):
        return "time", 0.0
    return "", 1.0


def _timing(entry: dict[str, Any], place: str, file: str) -> Timing:
    values: dict[str, Any] = {}
    for name, value in entry.items():
        kind, factor = _column(name)
        if kind in ("time", "rate"):
            dimension = TIME if kind == "time" else FLOPS
            values.setdefault(kind, _quantity(value, name, factor, dimension, file, place))
        elif kind:
            values.setdefault(kind, value)
    sizes = [
        _size(values.get(name, 1 if name == "batch" else None), name, file, place) for name in ("m", "n", "k", "batch")
    ]
    m, n, k, batch = sizes
    work = 2.0 * m * n * k * batch
    if "time" not in values and "rate" not in values:
        hints = (near_miss(key.lower(), ("seconds", "time_us", "tflops")) for key in entry)
        problem = "has no time and no rate; add a column such as seconds, time_us or tflops"
        raise InputError(problem + next((hint for hint in hints if hint), ""), file=file, field=place)
    seconds = values["time"] if "time" in values else work / values["rate"]
    if "time" in values and "rate" in values and abs(work / seconds / values["rate"] - 1.0) > _DISAGREE:
        raise InputError(
            f"its time says {work / seconds / 1e12:.4g} TFLOP/s and its rate {values['rate'] / 1e12:.4g}; mend the "
            "unit of one of them (ms and us are 1,000 apart), or leave one out",
            file=file, field=place,
        )  # fmt: skip
    dtype = str(values.get("dtype", "")).strip().lower().removeprefix("torch.")
    return Timing(place, m, n, k, _DTYPES.get(dtype, dtype), seconds, batch)


def _quantity(value: Any, name: str, factor: float, dimension: Dimension, file: str, place: str) -> float:
    try:
        number = float(value) * factor if factor else parse(value if isinstance(value, str) else str(value), dimension)
    except ValueError as problem:
        try:
            number = parse(value, dimension)
        except ValueError:
            reason = str(problem) if not factor else f"{value!r} is not a number"
            raise InputError(f"{reason}; or name the unit in the column, as in time_us", file=file,
                             field=f"{place}: {name}") from None  # fmt: skip
    except TypeError:
        raise InputError(f"{value!r} is not a number", file=file, field=f"{place}: {name}") from None
    if not math.isfinite(number) or number <= 0.0:
        raise InputError(f"{value!r} is not a positive number", file=file, field=f"{place}: {name}")
    return number


def _size(value: Any, name: str, file: str, place: str) -> int:
    text = str(value).strip()
    if value is None or not re.fullmatch(r"\d{1,12}(?:\.0)?", text, re.ASCII) or float(text) < 1:
        said = "is missing" if value is None else f"{text[:40]!r} is not a whole number above 0"
        raise InputError(f"{said}; every timing needs m, n and k", file=file, field=f"{place}: {name}")
    return int(float(text))


def fit_saturation(
    timings: Sequence[Timing], *, peak_flops: float, dtype: str | None = None, file: str = "timings"
) -> GemmFit:
    """The saturation curve of some timings of one number format, as shares of `peak_flops`.

    Raises InputError where rates are impossible, BackendMissing without scipy.
    """
    chosen = _of_one_type(timings, dtype, file)
    shares = np.array([timing.flops_per_s for timing in chosen]) / peak_flops
    _refuse_impossible(chosen, shares, peak_flops, file)
    rows = np.array([float(timing.m) for timing in chosen])
    columns = np.array([float(min(timing.n, timing.k)) for timing in chosen])
    told = [len(np.unique(values)) > 1 for values in (rows, columns)]
    logs = np.log(shares)

    def residuals(values: Floats) -> Floats:
        halves = (values[1] if told[0] else 0.0, values[2] if told[1] else 0.0)
        curve = Saturation.model_construct(peak=float(np.exp(values[0])), half_rows=halves[0], half_columns=halves[1])
        return np.asarray(np.log(saturated(curve, rows, columns)) - logs)

    free = [0, *(at + 1 for at in range(2) if told[at])]

    def shortened(values: Floats) -> Floats:
        full = np.zeros(3)
        full[free] = values
        return residuals(full)

    start = np.array([math.log(min(float(np.max(shares)), 0.99)), float(np.min(rows)), float(np.min(columns))])[free]
    lower = np.array([math.log(1e-6), 0.0, 0.0])[free]
    upper = np.array([1e-12, float(np.max(rows)) * 100.0, float(np.max(columns)) * 100.0])[free]
    fit = robust_fit(shortened, list(start), lower=list(lower), upper=list(upper), outlier=0.1)
    values = np.zeros(3)
    values[free] = fit.values
    curve = Saturation(
        peak=min(1.0, math.exp(float(values[0]))), half_rows=float(values[1]), half_columns=float(values[2])
    )
    off = np.abs(fit.residuals)
    at = int(np.argmax(off))
    return GemmFit(
        file, chosen[0].dtype, len(chosen), curve, float(np.median(off)), float(np.percentile(off, 90)),
        float(off[at]), _shape(chosen[at]), float(np.max(shares)), tuple(_remarks(told, fit, free, shares)),
    )  # fmt: skip


def _of_one_type(timings: Iterable[Timing], dtype: str | None, file: str) -> list[Timing]:
    everything = list(timings)
    known = sorted({timing.dtype for timing in everything})
    wanted = _DTYPES.get(dtype.lower(), dtype.lower()) if dtype else None
    if wanted is None and len(known) > 1:
        raise InputError(f"has timings of {listed(name or 'no dtype' for name in known)}, and a peak belongs to one of "
                         "them; choose with --dtype", file=file)  # fmt: skip
    chosen = [timing for timing in everything if wanted in (None, timing.dtype)]
    if not chosen:
        raise InputError(f"has no timing of {wanted}{near_miss(str(wanted), known)}; it has {listed(known)}", file=file)
    return chosen


def _refuse_impossible(timings: Sequence[Timing], shares: Floats, peak_flops: float, file: str) -> None:
    at = int(np.argmax(shares))
    best = float(shares[at])
    if best > _ABOVE_PEAK:
        middle = float(np.median(shares))
        above = int(np.sum(shares > _ABOVE_PEAK))
        hint = "give the dense peak of the number format with --peak"
        if middle > 5.0 and middle / 1e3 <= _ABOVE_PEAK:
            hint += ", unless times are ms where us is written (or s for ms): 1,000 times longer would fit"
        raise InputError(
            f"{_shape(timings[at])} reaches {timings[at].flops_per_s / 1e12:,.4g} TFLOP/s, {best:,.3g} times the peak "
            f"of {peak_flops / 1e12:,.4g} ({above} of {len(timings)} rows are above it); {hint}",
            file=file, field=timings[at].place,
        )  # fmt: skip
    large = [timing for timing in timings if min(timing.m, timing.n, timing.k) >= _LARGE]
    if large and best < _TOO_SLOW:
        raise InputError(
            f"the fastest row, {_shape(timings[at])}, reaches {timings[at].flops_per_s / 1e12:.3g} TFLOP/s, "
            f"{best:.2%} of the peak; the times seem to be us where ms is written (or ms for s)",
            file=file, field=timings[at].place,
        )  # fmt: skip


def _shape(timing: Timing) -> str:
    return f"{timing.m} x {timing.n} x {timing.k}"


def _remarks(told: Sequence[bool], fit: Robust, free: Sequence[int], shares: Floats) -> list[str]:
    notes = []
    for at, (name, what) in enumerate((("half_rows", "m"), ("half_columns", "the narrower of n and k")), start=1):
        if not told[at - 1]:
            notes.append(f"{name} is not told: {what} is the same in all timings")
            continue
        place = free.index(at)
        if fit.errors[place] > _TOLD * max(float(fit.values[place]), 1e-9) and fit.values[place] > 1.0:
            notes.append(f"{name} is told only within a factor: add timings of small {what}")
    if float(np.max(shares)) > 1.0:
        notes.append("the best row is above the peak by rounding")
    return notes
