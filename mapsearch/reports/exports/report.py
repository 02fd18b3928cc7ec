"""An answer as one page to look at: summary, ranking, charts, and whatever else is known of its first mapping.

Contents: Column, Table, TextBlock, ListBlock, Figure, Preformatted, Section, report_html.

The page is one file without scripts: nothing is loaded, it prints, and it is read with a keyboard or a screen reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import ClassVar

from mapsearch.reports.exports.charts import STYLE, Chart, chart_svg

MARKS = {"holds": "holds", "kept": "holds", "broken": "broken", "not kept": "broken", "does not hold": "broken"}
"""Words that stand for a verdict, and the class that colours their cell."""


@dataclass(frozen=True)
class TextBlock:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str
    dim: bool = False


@dataclass(frozen=True)
class ListBlock:
    """A list of sentences."""

    kind: ClassVar[str] = "list"
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """A column of a table; numbers stand to the right."""

    title: str
    number: bool = False


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    kind: ClassVar[str] = "table"
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True)
class Figure:
    """A drawing: a chart, or SVG that a drawing function made (and escaped)."""

    kind: ClassVar[str] = "figure"
    caption: str
    drawn: Chart | str

    @property
    def svg(self) -> str:
        """The drawing as SVG, safe to stand in a page."""
        from markupsafe import Markup

        return Markup(chart_svg(self.drawn) if isinstance(self.drawn, Chart) else self.drawn)


@dataclass(frozen=True)
class Preformatted:
    """A document to unfold."""

    kind: ClassVar[str] = "pre"
    title: str
    text: str


Block = TextBlock | ListBlock | Table | Figure | Preformatted


@dataclass(frozen=True)
class Section:
    """A part of the page with a title that the navigation lists."""

    name: str
    title: str
    blocks: tuple[Block, ...]


def report_html(title: str, summary: Sequence[str], sections: Sequence[Section], footer: str) -> str:
    """The page; sections without a block are left out."""
    from jinja2 import Environment
    from markupsafe import Markup

    source = files("mapsearch.reports.exports").joinpath("report.html").read_text(encoding="utf-8")
    page = Environment(autoescape=True, trim_blocks=False, keep_trailing_newline=True).from_string(source)
    shown = [section for section in sections if section.blocks]
    return page.render(
        title=title, summary=summary, sections=shown, footer=footer, chart_style=Markup(STYLE), marks=MARKS
    )
