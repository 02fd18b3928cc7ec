"""A live line on stderr while a search runs: phase, incumbent, gap; silent in a pipe.

Contents: watching.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mapsearch.progress import Progress


@contextmanager
def watching(*, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A callback for the solver, or None when nobody watches (`--quiet`, or stderr is not a terminal)."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[figures]}"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None, figures="")

        def show(report: Progress) -> None:
            bar.update(
                task,
                description=report.phase,
                completed=report.done,
                total=report.total or None,
                figures=figures(report),
            )

        yield show


def figures(report: Progress) -> str:
    """The numbers beside the bar: `1,024/4,321  best 12.3 s  gap 7.1 %`."""
    from mapsearch.reports import human

    parts = []
    if report.total:
        parts.append(f"{report.done:,}/{report.total:,}")
    if report.incumbent_s is not None:
        parts.append(f"best {human.seconds(report.incumbent_s, 4)}")
    if report.gap is not None:
        parts.append(f"gap {human.percent(report.gap)}")
    return "  ".join(parts)
