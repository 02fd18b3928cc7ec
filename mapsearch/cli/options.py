"""Options that several commands share: inputs, overrides of the run, the user's own constraints, and output.

Contents: FORMATS, OVERRIDES, CONSTRAINTS, CatalogueName, Duration, input_options, constraint_options,
devices_option, plot_option, output_options, solve_output_options, view_format, output_file, folder_of,
backend_option, given, chosen_run, retold, exit_code, read_run, output_format, check_output, check_folder,
check_plot.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from mapsearch.errors import ExitCode, InputError, UsageError, listed, near_miss

if TYPE_CHECKING:
    from mapsearch.answer import Answer
    from mapsearch.explanation import Explanation
    from mapsearch.front import Front
    from mapsearch.guideline import Guidelines
    from mapsearch.inventories.run import Run
    from mapsearch.parametric import Sensitivity

    TextType = click.ParamType[str]
    NumberType = click.ParamType[float]
else:  # click before 8.4 has no type parameter here
    TextType = NumberType = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])
D = TypeVar("D", "Answer", "Front", "Sensitivity", "Explanation", "Guidelines")

DEFAULT_MODEL = "moe-5t"
DEFAULT_RUN = "long-context-128k"
DEFAULT_TOPOLOGY = "asic"
FORMATS = ("table", "json", "yaml", "csv", "md", "html")
OVERRIDES = ("sequence_length", "global_batch", "precision", "framework", "layout", "recompute_stages")
CONSTRAINTS = ("fix", "allow", "at_most", "at_least", "inside")
_SUFFIXES = {
    ".json": "json",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".csv": "csv",
    ".md": "md",
    ".html": "html",
    ".svg": "svg",
}
_NUMBERED = ("tp", "cp", "dp", "pp", "etp", "ep", "edp", "vpp", "micro_batch", "zero")


class CatalogueName(TextType):
    """A file, or the name of a built-in document; completes both."""

    name = "name|file"

    def __init__(self, package: str, folder: str = "") -> None:
        self.package, self.folder = package, folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse an empty name early."""
        if not str(value).strip():
            self.fail("is empty; give a name or a file", param, ctx)
        if "\0" in str(value):
            self.fail("holds a NUL character; give a name or a file", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Built-in names, then files."""
        folder = resources.files(self.package) / "catalogue" / self.folder
        stems = sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))
        named = [CompletionItem(stem) for stem in stems if stem.startswith(incomplete)]
        return named or [CompletionItem(incomplete, type="file")]


class Duration(NumberType):
    """A positive, finite number of seconds."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number of seconds."""
        try:
            seconds = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        if not math.isfinite(seconds) or seconds <= 0.0:
            self.fail(f"{value} is not a positive, finite number of seconds", param, ctx)
        return seconds


def _stack(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def input_options(function: F) -> F:
    """--model, --run, --topology, --profile and the overrides of the run."""
    inventories = "mapsearch.inventories"
    return _stack(
        click.option(
            "--model", "-m", type=CatalogueName(inventories, "models"), help=f"Model.  [default: {DEFAULT_MODEL}]"
        ),
        click.option("--run", "-r", type=CatalogueName(inventories, "runs"), help=f"Run.  [default: {DEFAULT_RUN}]"),
        click.option(
            "--topology",
            "-t",
            type=CatalogueName("mapsearch.topologies"),
            help=f"Cluster.  [default: {DEFAULT_TOPOLOGY}]",
        ),
        click.option(
            "--profile",
            "-p",
            type=CatalogueName(inventories, "profiles"),
            help="Efficiencies.  [default: the built-in profile that names the topology's device]",
        ),
        click.option(
            "--sequence-length", type=click.IntRange(1, 2**40), metavar="TOKENS", help="Override the run's length."
        ),
        click.option(
            "--global-batch", type=click.IntRange(1, 2**40), metavar="SEQUENCES", help="Override the run's batch."
        ),
        click.option("--precision", metavar="FORMAT", help="bf16, fp16, fp8-tensor, fp8-block, mxfp8 or nvfp4."),
        click.option(
            "--framework",
            metavar="NAME[@RELEASE]",
            help="Legality rules: megatron, torchtitan, deepspeed, fsdp2, mindspeed or none; megatron@0.14.",
        ),
        click.option(
            "--layout", metavar="A,B", help="Cuts of layers over stages: auto, ends, flop, family, or as 8-8-7-7."
        ),
        click.option(
            "--recompute-stages", metavar="A,B", help="Recompute on the first stages only: all, half, or how many."
        ),
    )(function)


def devices_option(function: F) -> F:
    """--devices."""
    return click.option(
        "--devices", type=click.IntRange(1, 2**31), metavar="N", help="A cluster of this kind with N devices."
    )(function)


def constraint_options(function: F) -> F:
    """--fix, --allow, --at-most, --at-least, --inside, --price."""
    return _stack(
        click.option(
            "--fix", multiple=True, metavar="AXIS=VALUE", help="Fix an axis: tp=8, schedule=1f1b. Repeatable."
        ),
        click.option("--allow", multiple=True, metavar="AXIS=A,B", help="Allow only these: ep=32,64. Repeatable."),
        click.option("--at-most", multiple=True, metavar="AXIS=N", help="Upper limit: pp=16. Repeatable."),
        click.option("--at-least", multiple=True, metavar="AXIS=N", help="Lower limit: dp=2. Repeatable."),
        click.option(
            "--inside", multiple=True, metavar="LEVEL:AXIS", help="Keep groups inside a level: rack:ep. Repeatable."
        ),
        click.option(
            "--price",
            multiple=True,
            metavar="AXIS",
            help="Price keeping an axis inside the high-bandwidth domain: ep. Repeatable.",
        ),
    )(function)


def plot_option(function: F) -> F:
    """--plot."""
    help_ = "Draw the result as well: FILE.html, FILE.svg or FILE.png (needs 'mapsearch[plots]')."
    return click.option("--plot", type=click.Path(), metavar="FILE", help=help_)(function)


def view_format(*choices: str, help_: str = "How to write the result.") -> Callable[[F], F]:
    """--format of a command that shows one document: a table unless asked otherwise."""
    return click.option(
        "--format", "-f", "format_", type=click.Choice(choices), default="table", show_default=True, help=help_
    )


def output_file(help_: str = "Write to FILE instead of the screen.", metavar: str = "FILE") -> Callable[[F], F]:
    """--output."""
    return click.option("--output", "-o", type=click.Path(), metavar=metavar, help=help_)


def backend_option(help_: str) -> Callable[[F], F]:
    """--backend."""
    choices = click.Choice(["auto", "exhaustive", "cpsat", "milp"])
    return click.option("--backend", type=choices, default="auto", show_default=True, help=help_)


def output_options(function: F) -> F:
    """--format, --output, --quiet, --verbose."""
    return _output_options(function, output_file())


def solve_output_options(function: F) -> F:
    """The same of `solve`, whose --output may be a folder."""
    help_ = "Write to FILE instead of the screen; DIR/: inputs, mapping, answer and a lock file."
    return _output_options(function, output_file(help_, "FILE|DIR/"))


def _output_options(function: F, where: Callable[[F], F]) -> F:
    return _stack(
        click.option(
            "--format",
            "-f",
            "format_",
            type=click.Choice(FORMATS),
            help="How to write the result.  [default: by the name of --output, else table]",
        ),
        where,
        click.option("--quiet", "-q", is_flag=True, help="No progress, no footer."),
        click.option("--verbose", "-v", is_flag=True, help="All assumptions, and where time and memory go."),
    )(function)


def output_format(format_: str | None, output: str | None) -> str:
    """The format asked for, else the one that the file's name says, else the table."""
    return format_ or (_SUFFIXES.get(Path(output).suffix.lower(), "table") if output else "table")


def check_output(output: str | None, option: str = "--output") -> None:
    """Refuse an unwritable --output before the search rather than after it. Raises UsageError."""
    if output is None:
        return
    path = Path(output)
    try:
        if path.is_dir():
            raise UsageError("is a directory; name a file in it", file=output, field=option)
        if not path.parent.is_dir():
            raise UsageError(f"the folder {str(path.parent)!r} does not exist", file=output, field=option)
        _try_to_write(path)
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise UsageError(f"cannot be written: {reason}", file=output, field=option) from None


def folder_of(output: str | None) -> str | None:
    """What --output names where it is a folder: it ends with a slash, or is there as one."""
    named = output is not None and (output.endswith(("/", os.sep)) or os.path.isdir(output))
    return output if named else None


def check_folder(folder: str) -> None:
    """Refuse a folder that cannot be written to, or that holds something else. Raises UsageError."""
    from mapsearch.reproduction import LOCK_FILE

    path = Path(folder)
    try:
        if path.is_dir() and any(path.iterdir()) and not (path / LOCK_FILE).is_file():
            raise UsageError(
                f"is a directory with other files and no {LOCK_FILE}; name an empty or a new one, or a file",
                file=folder,
                field="--output",
            )
        if path.exists() and not path.is_dir():
            raise UsageError("is a file; name a folder without the last slash, or another one", file=folder)
        if not path.absolute().parent.is_dir():
            raise UsageError(f"the folder {str(path.parent)!r} does not exist", file=folder, field="--output")
    except OSError as problem:
        raise UsageError(f"cannot be written: {problem.strerror}", file=folder, field="--output") from None


def check_plot(plot: str | None) -> None:
    """Refuse a --plot that cannot be drawn or written before the search. Raises UsageError, BackendMissing."""
    if plot is None:
        return
    from mapsearch.reports.exports.plots import check_plot as check

    check(plot)
    check_output(plot, option="--plot")


def _try_to_write(path: Path) -> None:
    """Open the file for writing and leave it as it is; a pipe or a device is only asked. Raises OSError."""
    there = path.exists()
    if there and not path.is_file():
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return
    path.open("ab").close()
    if not there:
        path.unlink()


def given(run_options: dict[str, Any]) -> dict[str, list[str]]:
    """The options that change a run, as they were written, without those that were left out."""
    written = {name: run_options[name] for name in OVERRIDES if run_options[name] is not None}
    several = {name: run_options[name] for name in (*CONSTRAINTS, "price") if run_options.get(name)}
    return {**{name: [str(value)] for name, value in written.items()}, **{k: list(v) for k, v in several.items()}}


def chosen_run(name: str, run_options: dict[str, Any]) -> Run:
    """The run by name or path under the options of `input_options` and `constraint_options`. Raises as `read_run`."""
    return read_run(
        name,
        overrides={option: run_options[option] for option in OVERRIDES},
        constraints={option: run_options[option] for option in CONSTRAINTS},
        price=run_options["price"],
    )


def retold(document: D, run: str, run_options: dict[str, Any]) -> D:
    """A result with the run as it was named and the options that changed it, so that both can be read again."""
    about = document.provenance.model_copy(update={"run": run, "overrides": given(run_options)})
    return document.model_copy(update={"provenance": about})


def exit_code(status: str, *, held: bool, interrupted: bool) -> ExitCode:
    """The exit code of a result by its status, and whether it holds a mapping (docs/reference/exit-codes.md)."""
    if interrupted:
        return ExitCode.INTERRUPTED
    if status == "infeasible":
        return ExitCode.INFEASIBLE
    return ExitCode.FOUND if held else ExitCode.STOPPED


def read_run(
    name: str,
    *,
    overrides: dict[str, Any],
    constraints: dict[str, Sequence[str]] | None = None,
    price: Sequence[str] = (),
) -> Run:
    """The run by name or path, with the options that override it and the user's constraints merged in.

    `overrides` is field: value (None: not given); `constraints` is option name: its values as written; `price` is the
    axes whose placement is priced. An option wins over the same axis in the file.
    Raises InputError naming the file, or UsageError naming the option.
    """
    from mapsearch.inventories.base import load_inventory
    from mapsearch.inventories.run import Run

    run = load_inventory(Run, name)
    for field, value in overrides.items():
        if value is not None:
            run = _changed(run, f"--{field.replace('_', '-')}", **{field: value})
    for option, written in (constraints or {}).items():
        for text in written:
            merged = _merged(run.constraints.model_dump(exclude={"sources"}), option, text)
            run = _changed(run, f"--{option.replace('_', '-')} {text}", constraints=merged)
    for written_axis in price:
        axis = written_axis.strip().lower()
        if axis not in _NUMBERED[:7]:
            known = _NUMBERED[:7]
            raise UsageError(
                f"{axis!r} is not an axis{near_miss(axis, known)}; accepted: {listed(known)}", field="--price"
            )
        run = _changed(run, f"--price {axis}", placement={**run.placement, axis: "priced"})
    return run


def _changed(run: Run, option: str, **changes: Any) -> Run:
    try:
        return run.replaced(**changes)
    except InputError as problem:
        raise UsageError(problem.problem, field=option) from None


def _merged(constraints: dict[str, Any], option: str, text: str) -> dict[str, Any]:
    mark = ":" if option == "inside" else "="
    name, found, value = (part.strip() for part in text.partition(mark))
    flag = f"--{option.replace('_', '-')}"
    if not (found and name and value):
        example = {"inside": "rack:ep", "allow": "ep=32,64"}.get(option, "tp=8")
        raise UsageError(f"{text!r} is not read; write it as {flag} {example}", field=flag)
    if option == "inside":
        members = [part.strip() for part in value.split(",")]
        constraints["inside"] = {**constraints["inside"], name: [*constraints["inside"].get(name, []), *members]}
        return constraints
    axis = name.lower().replace("-", "_")
    wanted: Any = value
    if option == "allow":
        wanted = [part.strip() for part in value.split(",")]
    elif option != "fix":
        wanted = _limit(flag, axis, value)
    constraints[option] = {**constraints[option], axis: wanted}
    return constraints


def _limit(flag: str, axis: str, value: str) -> float:
    if axis not in _NUMBERED:
        raise UsageError(
            f"{axis!r} has no order to limit{near_miss(axis, _NUMBERED)}; accepted: {listed(_NUMBERED)}", field=flag
        )
    if not value.isdigit() or len(value) > 15:
        raise UsageError(f"{axis} takes a whole number, not {value!r}", field=flag)
    return float(value)
