"""Square tables of relations as vendors' tools print them: names across the top, one row for each name.

Contents: Word, Matrix, words_of, read_matrix.

A table may stand anywhere in a log, its rows may be wrapped, and what follows the cells of a row (affinities) is kept
as it is. Where the text is torn or contradicts itself the place is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mapsearch.topologies.importers.base import Repairs, fault

MAX_NAMES = 256
"""Parts of one node: more is no table of a node."""
_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Word:
    """A word of a text and where it stands, both from 1."""

    text: str
    line: int
    column: int


@dataclass
class Matrix:
    """A table that was read: cells by the names of row and column, and the rest of each row."""

    names: list[str]
    line: int
    """Of the header."""
    end: int
    """The line after the table."""
    cells: dict[tuple[str, str], Word] = field(default_factory=dict)
    tails: dict[str, list[Word]] = field(default_factory=dict)


def words_of(line: str, number: int) -> list[Word]:
    """The words of a line with their places."""
    return [Word(match.group(), number, match.start() + 1) for match in _WORD.finditer(line)]


@dataclass
class _Reader:
    lines: Sequence[str]
    is_name: Callable[[str], bool]
    is_cell: Callable[[str], bool]
    accepted: str
    repairs: Repairs

    def matrix(self, first: int) -> Matrix:
        """The table whose header is line `first`, from 1."""
        names, row = self._header(first)
        result = Matrix([word.text for word in names], first, row)
        self._refuse_twice(names)
        at = row
        while at <= len(self.lines):
            words = words_of(self.lines[at - 1], at)
            if not words and result.tails:
                break
            if len(words) > 1 and words[0].text in result.names and self.is_name(words[1].text):
                break  # the header of a second table
            if words and words[0].text in result.names:
                at = self._row(result, words, at)
            elif words and (result.tails or at > row + 2):
                break
            else:
                at += 1
        result.end = at
        self._complete(result)
        return result

    def _header(self, first: int) -> tuple[list[Word], int]:
        """The names of the columns, and the line where rows begin; a header may run over several lines."""
        names: list[Word] = []
        at = first
        while at <= len(self.lines) and at < first + 64:
            words = words_of(self.lines[at - 1], at)
            if names and (not words or self._is_row(words, names)):
                break
            for word in words:
                if not self.is_name(word.text):
                    break
                names.append(word)
            at += 1
            if words and not self.is_name(words[-1].text):
                break
        if len(names) > MAX_NAMES:
            raise fault(
                f"has {len(names):,} columns; at most {MAX_NAMES:,} are accepted", file=self.repairs.file, line=first
            )
        return names, at

    def _is_row(self, words: list[Word], names: list[Word]) -> bool:
        return words[0].text == names[0].text and (len(words) == 1 or not self.is_name(words[1].text))

    def _refuse_twice(self, names: list[Word]) -> None:
        seen: set[str] = set()
        for word in names:
            if word.text in seen:
                raise fault(
                    f"column {word.text} stands twice", file=self.repairs.file, line=word.line, column=word.column
                )
            seen.add(word.text)

    def _row(self, result: Matrix, words: list[Word], at: int) -> int:
        """Read the row that begins on line `at`; the line after it."""
        name, found = words[0], words[1:]
        wanted = len(result.names)
        at += 1
        while at <= len(self.lines):
            more = words_of(self.lines[at - 1], at)
            if not more or more[0].text in result.names:
                break
            short = len(found) < wanted and self.is_cell(more[0].text)
            if not short and not (len(found) >= wanted and _is_tail(more)):
                break
            found += more
            at += 1
        if name.text in result.tails:
            self._refuse_change(result, name, found)
            return at
        self._cells(result, name, found)
        result.tails[name.text] = found[wanted:]
        return at

    def _cells(self, result: Matrix, name: Word, found: list[Word]) -> None:
        wanted = len(result.names)
        for column, word in zip(result.names, found, strict=False):
            if not self.is_cell(word.text):
                if self._torn(result, name, word, found):
                    return
                raise fault(
                    f"{word.text[:40]!r} is no relation of {name.text} and {column}; accepted: {self.accepted}",
                    file=self.repairs.file, line=word.line, column=word.column,
                )  # fmt: skip
            result.cells[name.text, column] = word
        if len(found) < wanted:
            last = found[-1] if found else name
            self._short(name, len(found), wanted, last)
        if len(found) > wanted and self.is_cell(found[wanted].text):
            raise fault(
                f"row {name.text} has more relations than the header has names ({wanted})",
                file=self.repairs.file, line=found[wanted].line, column=found[wanted].column,
            )  # fmt: skip

    def _torn(self, result: Matrix, name: Word, word: Word, found: list[Word]) -> bool:
        """Whether the row simply ends too early, its affinity standing where relations should."""
        if not _is_tail([word]):
            return False
        place = found.index(word)
        self._short(name, place, len(result.names), word)
        found[place:place] = [Word("", word.line, word.column)] * (len(result.names) - place)
        return True

    def _short(self, name: Word, have: int, wanted: int, word: Word) -> None:
        self.repairs.mend(
            f"row {name.text} has {have} relations where the header has {wanted} names (the text is cut off)",
            "the rest taken from the other half of the table",
            line=word.line,
            column=word.column,
        )

    def _refuse_change(self, result: Matrix, name: Word, found: list[Word]) -> None:
        for column, word in zip(result.names, found, strict=False):
            old = result.cells.get((name.text, column))
            if old is not None and old.text != word.text:
                self.repairs.mend(
                    f"row {name.text} stands twice (first on line {old.line}) and says {old.text} and {word.text} of "
                    f"{column}",
                    "the first row counts",
                    line=word.line,
                    column=word.column,
                )
                return

    def _complete(self, result: Matrix) -> None:
        if not result.tails:
            raise fault("has a header of a table but no row", file=self.repairs.file, line=result.line)
        missing = [name for name in result.names if name not in result.tails]
        if missing:
            self.repairs.mend(
                f"has no row for {', '.join(missing[:4])}{' and more' if len(missing) > 4 else ''}, though the header "
                f"names {'it' if len(missing) == 1 else 'them'} (the text is cut off)",
                "taken from the other half of the table; what neither half says stays unknown",
                line=result.end - 1,
            )


def _is_tail(words: list[Word]) -> bool:
    """Whether these are affinities: CPU lists, NUMA nodes, N/A."""
    return all(re.fullmatch(r"[\d,\-]+|N/A|NA", word.text) for word in words)


def read_matrix(
    lines: Sequence[str],
    first: int,
    *,
    is_name: Callable[[str], bool],
    is_cell: Callable[[str], bool],
    accepted: str,
    repairs: Repairs,
) -> Matrix:
    """The table whose header stands on line `first` (from 1). Raises InputError with line and column.

    `is_name`, `is_cell`: what a column may be called and what a cell may hold; `accepted`: the latter in words.
    """
    return _Reader(lines, is_name, is_cell, accepted, repairs).matrix(first)
