"""Readers of other tools' topology files, one per format.

Contents: IMPORTERS, FORMATS, importer_of, read_file, read_files, read_text.

To add one: write the module (`FORMAT`, `detect(text, name)`, `read(text, file=..., repair=...)`, see base.py) and
name it here; the more particular formats stand first. The fuzz test and `topology import` take it from the list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mapsearch import documents
from mapsearch.errors import InputError, listed
from mapsearch.topologies.importers import (
    astra_sim,
    graphml,
    ibnetdiscover,
    kueue,
    nccl_xml,
    node_link,
    npu_smi,
    nvidia_smi,
    rocm_smi,
    slurm_conf,
    slurm_yaml,
    topograph,
)
from mapsearch.topologies.importers.base import Imported, Importer

IMPORTERS: tuple[Importer, ...] = (
    nccl_xml,
    graphml,
    rocm_smi,
    nvidia_smi,
    npu_smi,
    ibnetdiscover,
    node_link,
    astra_sim,
    slurm_yaml,
    kueue,
    topograph,
    slurm_conf,
)
"""First match counts."""
_LINE = re.compile(r"line (\d+)")
FORMATS = tuple(one.FORMAT for one in IMPORTERS)


def importer_of(text: str, file: str) -> Importer:
    """The importer that knows the text. Raises InputError with the list of formats."""
    for one in IMPORTERS:
        if one.detect(text, Path(file).name):
            return one
    raise InputError(f"is of no format that is known; known are {listed(FORMATS)}", file=file)


def read_text(text: str, *, file: str, repair: bool = False) -> Imported:
    """What a text says, by whichever importer knows it. Raises InputError."""
    return importer_of(text, file).read(text, file=file, repair=repair)


def read_file(path: Path | str, *, repair: bool = False) -> Imported:
    """What a file says, by whichever importer knows it. Raises InputError naming file, line and column."""
    return read_text(documents.read_text(path, errors="replace"), file=str(path), repair=repair)


def read_files(paths: Sequence[str], *, repair: bool = False) -> list[tuple[str, Imported]]:
    """What several files say; those of a format that may be spread over files are read as one. Raises InputError."""
    texts: dict[Importer, list[tuple[str, str]]] = {}
    result: list[tuple[str, Imported]] = []
    for path in paths:
        text = documents.read_text(path, errors="replace")
        one = importer_of(text, path)
        if getattr(one, "JOINED_WITH", None) is None:
            result.append((path, one.read(text, file=path, repair=repair)))
        else:
            texts.setdefault(one, []).append((path, text))
    for one, parts in texts.items():
        joint: str = getattr(one, "JOINED_WITH", "")
        file = ", ".join(path for path, _ in parts)
        try:
            result.append((file, one.read(joint.join(text for _, text in parts), file=file, repair=repair)))
        except InputError as problem:
            raise _in_its_file(problem, parts, joint) from None
    return result


def _in_its_file(problem: InputError, parts: Sequence[tuple[str, str]], joint: str) -> InputError:
    """An error in joined texts, with the line of the file that it stands in."""
    found = _LINE.match(problem.field or "")
    line = int(found.group(1)) if found else 0
    for path, text in parts if found else ():
        lines = f"{text}{joint}".count("\n")
        if line <= lines or path == parts[-1][0]:
            return InputError(problem.problem, file=path, field=_LINE.sub(f"line {line}", problem.field or ""))
        line -= lines
    return problem
