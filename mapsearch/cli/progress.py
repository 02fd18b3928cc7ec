"""A live line on stderr while a search or a sweep runs; in a pipe, silence or a plain line now and then.

Contents: watching, figures, sweeping, SweepClock.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mapsearch.progress import Progress
    from mapsearch.sweeps.run import SweepProgress

LINE_EVERY_S = 10.0
"""How often a sweep says in a pipe how far it is."""


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


class SweepClock:
    """How far a sweep is, in words, and how long it still takes at the rate of the items that ran now."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: tuple[float, int] | None = None
        """When items were first seen to have ended, and how many: what came before is the start of the workers."""

    def left_s(self, report: SweepProgress) -> float | None:
        """Seconds that are left; None until a second item has ended."""
        if not report.done:
            return None
        if self._first is None:
            self._first = self._clock(), report.done
        since, ended = self._first
        if report.done == ended:
            return None
        return (self._clock() - since) / (report.done - ended) * (report.total - report.kept - report.done)

    def words(self, report: SweepProgress) -> str:
        """`120/200 items, 2 failed, about 3.4 min left`."""
        from mapsearch.reports import human

        left = self.left_s(report)
        parts = [f"{report.kept + report.done:,}/{report.total:,} items"]
        if report.failed:
            parts.append(f"{report.failed:,} failed")
        if left:
            parts.append(f"about {human.seconds(left, 2)} left")
        return ", ".join(parts)


@contextmanager
def sweeping(*, quiet: bool) -> Iterator[tuple[Callable[[SweepProgress], None] | None, Callable[[str], None]]]:
    """Callbacks for a sweep: its progress (a bar on a terminal, else a line now and then), and its remarks."""
    if quiet:
        yield None, lambda text: None
        return
    clock = SweepClock()
    if not sys.stderr.isatty():
        yield _plain(clock), lambda text: print(f"mapsearch: {text}", file=sys.stderr)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("sweep"), BarColumn(bar_width=24), TextColumn("{task.fields[figures]}"), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("sweep", total=None, figures="reading")

        def show(report: SweepProgress) -> None:
            bar.update(task, completed=report.kept + report.done, total=report.total, figures=clock.words(report))

        yield show, lambda text: console.print(f"mapsearch: {text}", markup=False, soft_wrap=True)


def _plain(clock: SweepClock) -> Callable[[SweepProgress], None]:
    """A line every few seconds, and at the last item."""
    told_at = [time.monotonic()]

    def show(report: SweepProgress) -> None:
        words = clock.words(report)
        last = bool(report.done) and report.kept + report.done == report.total
        if last or time.monotonic() - told_at[0] >= LINE_EVERY_S:
            told_at[0] = time.monotonic()
            print(f"mapsearch: {words}", file=sys.stderr)

    return show
