"""Histograms from files: CSV (a line per expert, or a column), JSON, npz.

Contents: read_histogram.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mapsearch import documents
from mapsearch.errors import InputError, listed
from mapsearch.experts.histogram import MAX_CELLS, Histogram, histogram_of

Floats = NDArray[np.float64]
KEYS = ("step", "layer", "source")
COUNTS = ("tokens", "count", "load")
_EXPERT_COLUMN = re.compile(r"^(?:e|expert)?_?(\d+)$", re.IGNORECASE)
_FORMS = "write step, layer, source, expert, tokens (step, layer and source may be left out), or a column per expert"


def read_histogram(name: str) -> Histogram:
    """The histogram of a file, by its suffix: .csv, .json, .yaml or .npz. Raises InputError."""
    readers = {".csv": _csv, ".json": _document, ".yaml": _document, ".yml": _document, ".npz": _npz}
    suffix = Path(name).suffix.lower()
    if suffix not in readers:
        raise InputError(f"has the suffix {suffix!r}; accepted: {listed(readers)}", file=name)
    return readers[suffix](name)


def _document(name: str) -> Histogram:
    data = documents.load(name)
    if isinstance(data, dict):
        strangers = [key for key in data if key not in ("tokens", "layers")]
        if "tokens" not in data or strangers:
            told = f"unknown key {strangers[0]!r}" if strangers else "has no `tokens`"
            raise InputError(f"{told}; known keys: tokens, layers", file=name)
    else:
        data = {"tokens": data}
    try:
        tokens = np.asarray(data["tokens"], dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("is not a table of numbers with rows of equal length", file=name, field="tokens") from None
    return _named(histogram_of(tokens, name), data.get("layers"))


def _named(histogram: Histogram, layers: Any) -> Histogram:
    """With the layers' own names. Raises InputError."""
    if layers is None:
        return histogram
    count = len(histogram.layers)
    if not isinstance(layers, list) or len(set(map(str, layers))) != count or len(layers) != count:
        raise InputError(f"names the {count} layers, each once", file=histogram.name, field="layers")
    return histogram_of(histogram.tokens, histogram.name, tuple(map(str, layers)))


def _npz(name: str) -> Histogram:
    """The array `tokens`, or the only one; `layers` names the layers. Pickled objects are refused."""
    try:
        with zipfile.ZipFile(name) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > 8 * MAX_CELLS + 2**20:
            raise InputError(
                f"unpacks to {size / 2**20:,.0f} MiB; at most {8 * MAX_CELLS // 2**20} are read", file=name
            )
        with np.load(name, allow_pickle=False) as held:
            arrays = {key: np.asarray(held[key]) for key in held.files}
    except FileNotFoundError:
        raise InputError("no such file", file=name) from None
    except (OSError, zipfile.BadZipFile, zlib.error, ValueError, EOFError, NotImplementedError) as problem:
        raise InputError(f"is not an npz file of plain numbers: {str(problem).splitlines()[0]}", file=name) from None
    layers = arrays.pop("layers", None)
    key = "tokens" if "tokens" in arrays else next(iter(arrays), "")
    if key not in arrays or (key != "tokens" and len(arrays) != 1):
        raise InputError(f"holds the arrays {listed(arrays) or 'none'}; call the loads `tokens`", file=name)
    if arrays[key].dtype.kind not in "iuf":
        raise InputError(f"holds {arrays[key].dtype}, not numbers", file=name, field=key)
    return _named(
        histogram_of(arrays[key].astype(np.float64), name), None if layers is None else np.ravel(layers).tolist()
    )


def _csv(name: str) -> Histogram:
    rows = csv.reader(io.StringIO(documents.read_text(name)))
    try:
        header = [word.strip().lower() for word in next(rows)]
        lines = [(rows.line_num, row) for row in rows if any(word.strip() for word in row)]
    except csv.Error as problem:
        raise InputError(f"line {rows.line_num} is not CSV: {problem}", file=name) from None
    if len(set(header)) != len(header):
        raise InputError("line 1 names a column twice", file=name)
    if not lines:
        raise InputError("has a header and no lines", file=name)
    columns = {place: _column(word, name) for place, word in enumerate(header)}
    by_expert = {place: int(word) for place, word in columns.items() if word.isdigit()}
    long = {"expert", "tokens"} <= set(columns.values()) and not by_expert
    if not long and (not by_expert or {"expert", "tokens"} & set(columns.values())):
        raise InputError(f"line 1 has the columns {listed(header)}; {_FORMS}", file=name)
    cells: dict[tuple[int, int, int, int], float] = {}
    for line, row in lines:
        if len(row) != len(header):
            raise InputError(f"line {line} has {len(row)} fields where line 1 has {len(header)}", file=name)
        keys = {
            word: _whole(row[place], name, line, word) for place, word in columns.items() if word in (*KEYS, "expert")
        }
        place_of = (keys.get("step", 0), keys.get("layer", 0), keys.get("source", 0))
        told = by_expert.items() if by_expert else [(list(columns.values()).index("tokens"), keys["expert"])]
        for place, expert in told:
            if (*place_of, expert) in cells:
                raise InputError(f"line {line} gives a step, layer, source and expert that stand above", file=name)
            cells[*place_of, expert] = _number(row[place], name, line)
    return _filled(cells, name)


def _column(word: str, name: str) -> str:
    """What a column holds: a key, `expert`, `tokens`, or the number of an expert. Raises InputError."""
    if word in (*KEYS, "expert"):
        return word
    if word in COUNTS:
        return "tokens"
    match = _EXPERT_COLUMN.match(word)
    if match is None or len(match.group(1)) > 6:
        raise InputError(f"line 1 has a column {word!r}; {_FORMS}", file=name)
    return str(int(match.group(1)))


def _whole(text: str, name: str, line: int, column: str) -> int:
    if not text.strip().isdecimal() or len(text.strip()) > 12:
        raise InputError(f"line {line}: {text.strip()!r} is not a whole number from 0 on", file=name, field=column)
    return int(text)


def _number(text: str, name: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise InputError(f"line {line}: {text.strip()!r} is not a number of tokens", file=name, field="tokens")
    return value


def _filled(cells: dict[tuple[int, int, int, int], float], name: str) -> Histogram:
    """Cells as an array; an expert that is not listed received nothing. Raises InputError."""
    steps, layers, sources = (sorted({key[axis] for key in cells}) for axis in range(3))
    experts = max(key[3] for key in cells) + 1
    if len(steps) * len(layers) * len(sources) * experts > MAX_CELLS:
        raise InputError(
            f"numbers experts up to {experts - 1:,}, and more than {MAX_CELLS:,} numbers in all", file=name
        )
    places = [{number: place for place, number in enumerate(numbers)} for numbers in (steps, layers, sources)]
    tokens = np.zeros((len(steps), len(layers), len(sources), experts))
    for (step, layer, source, expert), value in cells.items():
        tokens[places[0][step], places[1][layer], places[2][source], expert] = value
    return histogram_of(tokens, name, tuple(str(layer) for layer in layers))
