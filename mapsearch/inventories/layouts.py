"""Layouts and splits as people write them: words, lists of layers per stage, and Megatron-LM's strings.

Contents: read_layout, read_layouts, read_splits.
"""

from __future__ import annotations

import re

WORDS = ("auto", "ends", "flop", "family")
_GROUP = re.compile(r"\(([^()]*)\)\*(\d+)|([A-Za-z])\*(\d+)")


def read_layout(value: object) -> object:
    """Layers per chunk of `16-15-15-16` or of Megatron-LM's `Et*15|(t*16|)*6t*15L`; other values as they are.

    Source: Megatron-LM, --pipeline-model-parallel-layout: t layer, E embedding, L loss, m MTP module, | a new chunk.
    Raises ValueError where E is not on the first chunk, or L or m not on the last.
    """
    if not isinstance(value, str) or value.strip().lower() in WORDS:
        return value
    text = value.replace(",", "").replace(" ", "")
    if re.fullmatch(r"\d+(-\d+)*", text):
        return [int(count) for count in text.split("-")]
    while (found := _GROUP.search(text)) is not None:
        what, times = (found[1], found[2]) if found[1] is not None else (found[3], found[4])
        if len(text) + len(what) * int(times) > 100_000:
            raise ValueError(f"layout {value!r} is too long")
        text = text[: found.start()] + what * int(times) + text[found.end() :]
    if not re.fullmatch(r"E?[tmL|]*", text) or "t" not in text:
        raise ValueError(
            f"{value!r} is no layout; write layers per stage (8-8-7-7), or as Megatron-LM does: Et*8|t*8|t*7|t*7L"
        )
    chunks = text.split("|")
    if any(mark in chunk for chunk in chunks[:-1] for mark in "mL"):
        raise ValueError(f"{value!r} puts MTP modules or the loss before the last stage, which is not represented")
    return [chunk.count("t") for chunk in chunks]


def read_layouts(value: object) -> object:
    """Several layouts, as a list or as `auto,flop,8-8-7-7`."""
    parts = [part.strip().lower() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    return [read_layout(part) for part in parts] if isinstance(parts, list) else parts


def read_splits(value: object) -> object:
    """Several splits of recompute, as a list, one number, or as `all,half,2`."""
    parts = [part.strip().lower() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    parts = [parts] if isinstance(parts, int) else parts
    if not isinstance(parts, list):
        return parts
    return [int(part) if isinstance(part, str) and part.isdecimal() else part for part in parts]
