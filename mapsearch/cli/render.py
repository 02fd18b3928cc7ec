"""Results onto the screen or into a file: the one place that knows formats, widths and encodings.

Contents: emit, text_of, emit_view, write_text, write_plot, write_drawn.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapsearch.errors import UsageError

if TYPE_CHECKING:
    from rich.text import Text

    from mapsearch.answer import Answer, CheckReport
    from mapsearch.audited import Audit
    from mapsearch.comparison import Comparison
    from mapsearch.contract import Contract
    from mapsearch.expert_load import ExpertLoad
    from mapsearch.explanation import Explanation
    from mapsearch.front import Front
    from mapsearch.guideline import Guidelines
    from mapsearch.loop import LoopReport
    from mapsearch.parametric import Sensitivity
    from mapsearch.placement import Placement
    from mapsearch.pools_explained import PoolsExplanation
    from mapsearch.reproduction import Reproduction
    from mapsearch.scaledown import ScaledDown
    from mapsearch.verdict import Verdict

    Result = (
        Answer
        | Audit
        | CheckReport
        | Front
        | Sensitivity
        | Comparison
        | ExpertLoad
        | Explanation
        | Guidelines
        | Placement
        | PoolsExplanation
        | ScaledDown
        | Verdict
        | Contract
        | Reproduction
        | LoopReport
    )

_PIPE_WIDTH = 120


def emit(result: Result, *, format_: str, output: str | None, verbose: bool = False, quiet: bool = False) -> None:
    """Write a result to `output`, or to stdout; a table on a terminal is coloured. Raises UsageError."""
    if output is not None:
        _write(output, text_of(result, format_, verbose=verbose, quiet=quiet))
        if not quiet:
            print(f"written to {output}", file=sys.stderr)
    elif format_ == "table":
        _show(_lines(result, _screen_width(), verbose=verbose, quiet=quiet))
    else:
        sys.stdout.write(text_of(result, format_, verbose=verbose, quiet=quiet))


def text_of(result: Result, format_: str, *, verbose: bool = False, quiet: bool = False) -> str:
    """A result as text in one format."""
    from mapsearch import documents
    from mapsearch.reports.flat import csv_text
    from mapsearch.reports.views import VIEWS

    if format_ == "json":
        return result.to_json()
    if format_ == "yaml":
        return documents.dump(json.loads(result.to_json()))
    if format_ == "md":
        return VIEWS[type(result)].markdown(result)
    if format_ == "html":
        from mapsearch.reports.page import page

        return page(_lines(result, _PIPE_WIDTH, verbose=True, quiet=quiet))
    if format_ == "csv":
        return csv_text(VIEWS[type(result)].records(result))
    return "".join(f"{line.plain}\n" for line in _lines(result, _PIPE_WIDTH, verbose=verbose, quiet=quiet))


def emit_view(view: Callable[[int], Sequence[Text]], data: Any, *, format_: str, output: str | None) -> None:
    """Write a table view (lines that fit a width), or its plain data as JSON or YAML. Raises UsageError."""
    if format_ == "table" and output is None:
        _show(view(_screen_width()))
        return
    from mapsearch import documents

    if format_ == "table":
        text = "".join(f"{line.plain}\n" for line in view(_PIPE_WIDTH))
    elif format_ == "json":
        text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    else:
        text = documents.dump(data)
    write_text(text, output)


def write_text(text: str, output: str | None) -> None:
    """Text to a file, or to stdout. Raises UsageError."""
    if output is None:
        sys.stdout.write(text)
        return
    _write(output, text)
    print(f"written to {output}", file=sys.stderr)


def write_plot(fronts: Sequence[Front], names: Sequence[str], plot: str, *, quiet: bool = False) -> None:
    """Draw fronts into a file. Raises UsageError, BackendMissing."""
    from mapsearch.reports.exports.plots import plot_bytes

    write_drawn(plot_bytes(fronts, names, Path(plot).suffix.lower()), plot, quiet=quiet)


def write_drawn(drawn: bytes, plot: str, *, quiet: bool = False) -> None:
    """The bytes of a plot into its file. Raises UsageError."""
    try:
        Path(plot).write_bytes(drawn)
    except OSError as problem:
        raise UsageError(f"cannot be written: {problem.strerror}", file=plot, field="--plot") from None
    if not quiet:
        print(f"drawn into {plot}", file=sys.stderr)


def _lines(result: Result, width: int, *, verbose: bool, quiet: bool) -> list[Text]:
    from mapsearch.reports.views import VIEWS

    return VIEWS[type(result)].lines(result, width=width, verbose=verbose, footer=not quiet)


def _screen_width() -> int:
    """Width of the terminal, COLUMNS when it is set, 120 in a pipe."""
    fallback = (_PIPE_WIDTH, 50)
    if os.environ.get("COLUMNS", "").isdigit() or sys.stdout.isatty():
        return shutil.get_terminal_size(fallback).columns
    return _PIPE_WIDTH


def _show(lines: Sequence[Text]) -> None:
    from rich.console import Console

    from mapsearch.reports.layout import to_ascii

    class Screen(Console):
        """A console that lets a closed pipe end the command quietly instead of with exit code 1."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    console = Screen(highlight=False, width=10**4, legacy_windows=False)
    shown = [line if _can_show(line.plain) else type(line)(to_ascii(line.plain)) for line in lines]
    for line in shown:
        console.print(line, soft_wrap=True)


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _write(output: str, text: str) -> None:
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"cannot be written: {problem.strerror}", file=output, field="--output") from None
