"""Slurm's host lists: `tux[0-3,12]`, `rack[0-1]n[01-18]`, `a,b[1-2]-ib`.

Contents: Listed, HostLists, short, MAX_NAMES, MAX_NAME_LENGTH.

A list names what is inside its brackets, several pairs of brackets name all combinations (the last one runs fastest),
and a number keeps the zeros it is written with: `n[08-10]` is n08, n09, n10. Nothing is written out before it is
counted, so that `node[1-999999999]` costs nothing.

Source: Slurm documentation, "Hostlist expressions" of the man pages of topology.conf(5) and scontrol(1).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import prod

from mapsearch.topologies.importers.base import MAX_NODES, Repairs, fault

MAX_NAMES = 4 * MAX_NODES
"""Names in all lists of one file: a node may stand in several topologies and each switch in several parents."""
MAX_NAME_LENGTH = 255
"""Bytes of a host name in the DNS (RFC 1035, section 2.3.4)."""
_MAX_DIGITS = 18
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)")
_NAME = re.compile(r"[\w.:@+\-]*", re.ASCII)
_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


@dataclass(frozen=True)
class Listed:
    """The text of a list and where it stands: line and column of a character of it, both from 1."""

    text: str
    where: Callable[[int], tuple[int, int]]


@dataclass(frozen=True)
class _Run:
    """Numbers from first to last with at least `width` digits."""

    first: int
    last: int
    width: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def words(self) -> list[str]:
        return [str(number).zfill(self.width) for number in range(self.first, self.last + 1)]


@dataclass
class HostLists:
    """Writes out the lists of one file, and stops when they name more than any cluster has."""

    repairs: Repairs
    left: int = MAX_NAMES

    def names(self, listed: Listed, what: str) -> list[str]:
        """The names of a list, in its order; `what` they are called in errors. Raises InputError."""
        result: list[str] = []
        for start, end in _pieces(listed.text):
            piece = listed.text[start:end]
            offset = start + len(piece) - len(piece.lstrip())
            piece = piece.strip()
            if piece:
                result.extend(self._written_out(listed, offset, piece, what))
            else:
                line, column = listed.where(min(start, max(len(listed.text) - 1, 0)))
                self.repairs.mend(f"an empty name in the list of {what}s", "left out", line=line, column=column)
        return result

    def _written_out(self, listed: Listed, offset: int, piece: str, what: str) -> list[str]:
        choices, length, at = [], 0, 0
        while at < len(piece):
            match = _PART.match(piece, at)
            if match is None:
                raise self._fault(listed, offset + at, f"{short(piece)} has a bracket without its partner")
            if match.group(1) is None:
                word = match.group(2)
                good = _NAME.match(word)
                if good is None or good.end() != len(word):
                    bad = offset + at + (good.end() if good else 0)
                    raise self._fault(
                        listed, bad, f"{short(piece)} is no name of a {what}: letters, digits and . _ - are"
                    )
                choices.append([_Run(0, 0, 0)])
                length += len(word)
            else:
                runs = self._runs(listed, offset + at + 1, match.group(1), piece)
                choices.append(runs)
                length += max(max(run.width, len(str(run.last))) for run in runs)
            at = match.end()
        if length > MAX_NAME_LENGTH:
            what = f"a name of {length:,} letters; host names have {MAX_NAME_LENGTH} at most"
            raise self._fault(listed, offset, what)
        count = prod(sum(len(run) for run in runs) for runs in choices)
        if count > self.left:
            raise self._fault(
                listed, offset, f"{short(piece)} names {count:,} {what}s; a file may name {MAX_NAMES:,} at most"
            )
        self.left -= count
        words = [
            [match.group(2)] if match.group(1) is None else [word for run in runs for word in run.words()]
            for match, runs in zip(_PART.finditer(piece), choices, strict=True)
        ]
        return ["".join(combination) for combination in product(*words)]

    def _runs(self, listed: Listed, offset: int, inside: str, piece: str) -> list[_Run]:
        runs = []
        for word in inside.split(","):
            match = _RANGE.fullmatch(word.strip())
            if match is None or max(map(len, match.group(0).split("-"))) > _MAX_DIGITS:
                what = f"{short(word)!r} in {short(piece)} is neither a number nor a range such as 001-016"
                raise self._fault(listed, offset, what)
            first = int(match.group(1))
            last = int(match.group(2) or match.group(1))
            if last < first:
                raise self._fault(listed, offset, f"the range {word.strip()} in {short(piece)} runs backwards")
            runs.append(_Run(first, last, len(match.group(1))))
            offset += len(word) + 1
        return runs

    def _fault(self, listed: Listed, offset: int, problem: str) -> Exception:
        line, column = listed.where(offset)
        return fault(problem, file=self.repairs.file, line=line, column=column)


def _pieces(text: str) -> list[tuple[int, int]]:
    """Where the parts of a list begin and end; commas inside brackets do not part."""
    ends, depth = [], 0
    for index, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        elif letter == "," and depth <= 0:
            ends.append(index)
    return list(zip([0, *(end + 1 for end in ends)], [*ends, len(text)], strict=True))


def short(text: object, most: int = 40) -> str:
    """A text of the file as sentences show it: on one line, its end cut off when it is long."""
    line = " ".join(str(text).split())
    return line if len(line) <= most else f"{line[: most - 3]}..."
