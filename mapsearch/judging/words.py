"""Numbers as people write them in reports: `> 5000`, `4 x nodes`, `2 intended`, `H100 80GB`.

Contents: Said, said, billions_in, gigabytes_in.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

_NUMBER = re.compile(r"^\s*(>=|>|<=|<|~|about)?\s*(\d+(?:\.\d+)?)\s*([kK])?\b\s*(.*)$")


@dataclass(frozen=True)
class Said:
    """A whole number as far as it is said: exact, or only a bound."""

    value: int
    exact: bool = True


def said(given: Any, nodes: int | None = None) -> Said | None:
    """The number in what was written; None when there is none. `4 x nodes` is read with the number of nodes."""
    if given is None or isinstance(given, bool):
        return None
    if isinstance(given, int | float):
        return Said(int(given))
    found = _NUMBER.match(str(given).replace(",", ""))
    if found is None:
        return None
    sign, number, kilo, rest = found.groups()
    value = float(number) * (1024 if kilo else 1)
    if re.match(r"[x*]\s*nodes\b", rest):
        return None if nodes is None else Said(int(value) * nodes)
    if sign == ">":
        value += 1
    return Said(int(value), exact=sign is None)


def billions_in(name: str) -> float | None:
    """Billions of parameters that a name says: `Qwen2.5-32B`, `BERT 1-10 B` (the geometric middle); None without."""
    spread = re.search(r"(?<![A-Za-z\d.])(\d+(?:\.\d+)?)\s*-\s*(\d+(?:\.\d+)?)\s*B\b", name)
    if spread:
        return math.sqrt(float(spread[1]) * float(spread[2]))
    one = re.search(r"(?<![A-Za-z\d.])(\d+(?:\.\d+)?)\s*[Bb]\b", name)
    return float(one[1]) if one else None


def gigabytes_in(name: str) -> float | None:
    """Memory that a device's name says: `H100 80GB`."""
    found = re.search(r"(\d+)\s*(?:GB|G)\b", name)
    return float(found[1]) if found else None
