"""Lines of styled text that fit a width: the few pieces every table view is built from.

Contents: Column, grid, grid_width, fitted, packed, flowed, section, to_ascii.

A view is a list of `rich.text.Text` lines; its `.plain` is what a pipe gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

_ASCII = {
    "·": "-",
    "→": "->",
    "×": "x",
    "≤": "<=",
    "≥": ">=",
    "−": "-",
    "…": "...",
    "–": "-",
    "│": "|",
    "≈": "~",
    "±": "+-",
}


@dataclass(frozen=True)
class Column:
    """One column of a table: its title, one text per row, and how it stands."""

    title: str
    values: Sequence[str]
    left: bool = False
    style: str = ""
    gap: int = 2
    """Blanks before the column."""

    @property
    def width(self) -> int:
        """Cells of the widest entry."""
        return max(cell_len(text) for text in (self.title, *self.values))


def grid(columns: Sequence[Column], *, indent: int = 0) -> list[Text]:
    """A header line and one line per row, columns aligned; trailing blanks are cut."""
    lines = []
    for row in range(-1, len(columns[0].values)):
        line = Text(" " * indent)
        for place, column in enumerate(columns):
            text = column.title if row < 0 else column.values[row]
            blanks = " " * (column.width - cell_len(text))
            line.append(" " * column.gap if place else "")
            line.append(text + blanks if column.left else blanks + text, style="dim" if row < 0 else column.style)
        line.rstrip()
        lines.append(line)
    return lines


def grid_width(columns: Sequence[Column]) -> int:
    """Cells that `grid` needs."""
    return sum(column.width + column.gap for column in columns) - columns[0].gap


def fitted(titles: Sequence[str], rows: Sequence[Sequence[str]], *, width: int) -> list[Text]:
    """A table whose first column names its rows; row by row where it is too wide for the screen, or empty."""
    columns = [Column(title, [row[place] for row in rows], left=place == 0) for place, title in enumerate(titles)]
    if rows and grid_width(columns) + 2 <= width:
        return grid(columns, indent=2)
    lines: list[Text] = []
    for row in rows:
        rest = (f"{title} {value}".strip() for title, value in zip(titles[1:], row[1:], strict=True) if value)
        lines += flowed(" · ".join([row[0], *rest]), indent=2, width=width)
    return lines


def packed(parts: Sequence[tuple[str, str]], *, indent: int, width: int, gap: str = "   ") -> list[Text]:
    """Styled parts in order, as many on each line as fit; a part wider than a line is wrapped."""
    lines: list[Text] = []
    for text, style in parts:
        if not text:
            continue
        if lines and lines[-1].cell_len + cell_len(gap) + cell_len(text) <= width:
            lines[-1].append(gap).append(text, style=style)
        else:
            lines += flowed(text, indent=indent, width=width, style=style)
    return lines


def flowed(text: str, *, indent: int = 0, width: int, style: str = "", hang: int = 2) -> list[Text]:
    """A sentence wrapped at blanks, following lines indented by `hang` more; long words are not cut."""
    lines: list[Text] = []
    current = " " * indent
    fresh = True
    for word in text.split():
        if not fresh and cell_len(current) + 1 + cell_len(word) > width:
            lines.append(Text(current, style=style))
            current, fresh = " " * (indent + hang), True
        current += word if fresh else f" {word}"
        fresh = False
    return [*lines, Text(current, style=style)]


def section(title: str, body: Sequence[Text], *, width: int) -> list[Text]:
    """A blank line, a heading, and its lines; nothing when there are none."""
    return [Text(""), *flowed(title, width=width, style="bold"), *body] if body else []


def to_ascii(text: str) -> str:
    """The same text for a screen that shows ASCII only."""
    for fancy, plain in _ASCII.items():
        text = text.replace(fancy, plain)
    return text
