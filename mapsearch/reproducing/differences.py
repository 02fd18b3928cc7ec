"""Two documents field by field.

Contents: differences, shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mapsearch.reproduction import Difference

LONGEST = 200
"""Characters of a value that are shown; a whole graph of links is no reading."""
_MISSING = object()


def differences(file: str, before: Any, after: Any) -> list[Difference]:
    """Every field that differs, in the order of the document; lists of named parts are compared by name."""
    return [
        Difference(file=file, field=path or "(all)", before=shown(old), after=shown(new))
        for path, old, new in _walk("", before, after)
    ]


def shown(value: Any) -> str:
    """A value in a sentence: words as they are, the rest as short JSON, nothing as `(absent)`."""
    if value is _MISSING:
        return "(absent)"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"


def _walk(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            inner = f"{path}.{key}" if path else str(key)
            yield from _walk(inner, before.get(key, _MISSING), after.get(key, _MISSING))
    elif isinstance(before, list) and isinstance(after, list):
        yield from _walk_lists(path, before, after)
    elif isinstance(before, bool) is not isinstance(after, bool) or before != after:
        # 1 and 1.0 are the same number however they are written; 1 and true are not.
        yield path, before, after


def _walk_lists(path: str, before: list[Any], after: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    names, others = _names(before), _names(after)
    if names and others and names != others and len(set(names)) == len(names) and len(set(others)) == len(others):
        yield from _walk(path, dict(zip(names, before, strict=True)), dict(zip(others, after, strict=True)))
        if set(names) == set(others):
            yield path, names, others
        return
    if len(before) != len(after) and not (names and others):
        yield path, before, after
        return
    for place in range(max(len(before), len(after))):
        word = names[place] if place < len(names) else str(place)
        first: Any = before[place] if place < len(before) else _MISSING
        second: Any = after[place] if place < len(after) else _MISSING
        yield from _walk(f"{path}.{word}", first, second)


def _names(parts: list[Any]) -> list[str]:
    """Names of the parts of a list, where all have one."""
    found = [part.get("name", part.get("id")) if isinstance(part, dict) else None for part in parts]
    return [str(name) for name in found] if parts and all(name is not None for name in found) else []
