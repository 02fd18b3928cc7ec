"""The entry point: a lazy command group, and one place that turns errors into sentences and exit codes.

Contents: COMMANDS, COMPLETE_VARIABLE, LazyGroup, cli, main.

`mapsearch --help` answers at once: a command's module is imported only when that command runs.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem, shell_complete

from mapsearch import __version__
from mapsearch.errors import ExitCode, MapsearchError, near_miss

LONGEST_SENTENCE = 800
COMPLETE_VARIABLE = "_MAPSEARCH_COMPLETE"
COMMANDS = {
    "solve": ("mapsearch.cli.solve:command", "Rank the fastest mappings of a model on a cluster, with proof."),
    "reproduce": ("mapsearch.cli.reproduce:command", "Solve a locked folder again, and say what has changed."),
    "check": ("mapsearch.cli.check:command", "Judge one mapping: every relation with its margin."),
    "audit": ("mapsearch.cli.audit:command", "Route a mapping's collectives on the graph of the cluster."),
    "contract": ("mapsearch.cli.contract:command", "What a machine can confirm of one mapping, in ten domains."),
    "explain": ("mapsearch.cli.explain:command", "What binds a mapping, why nothing fits, or why not that one."),
    "scale-down": (
        "mapsearch.cli.scale_down:command",
        "The small run that keeps most of what a mapping has to prove.",
    ),
    "guidelines": (
        "mapsearch.cli.guidelines:command",
        "Rules of thumb on trial: which hold for this model and cluster.",
    ),
    "pareto": ("mapsearch.cli.pareto:command", "The exact front of step time and other objectives."),
    "sensitivity": ("mapsearch.cli.sensitivity:command", "The optimum as a function of one input, with breakpoints."),
    "compare": ("mapsearch.cli.compare:command", "Put answers, or fronts, side by side."),
    "rollout": ("mapsearch.cli.rollout:command", "Training and rollout on two pools, in one search."),
    "timeline": ("mapsearch.cli.timeline:command", "Draw the pipeline of a mapping, run operation by operation."),
    "loop": ("mapsearch.cli.loop:command", "Training and rollout side by side: step, queue, staleness."),
    "report": ("mapsearch.cli.report:command", "An answer as one page to look at."),
    "sweep": ("mapsearch.cli.sweep:command", "Run many searches from one file; what is killed continues."),
    "model": ("mapsearch.cli.model:command", "List, show and convert models."),
    "topology": ("mapsearch.cli.topology:command", "List, show and validate clusters."),
    "placement": ("mapsearch.cli.placement:command", "Ranks on devices, where groups live, files for launchers."),
    "export": ("mapsearch.cli.export:command", "Write a mapping as the launch file of a framework."),
    "import": ("mapsearch.cli.importing:command", "Read a launch file as a case, a mapping or a run."),
    "experts": ("mapsearch.cli.experts:command", "Router load by expert and rank, and experts placed on ranks."),
    "calibrate": ("mapsearch.cli.calibrate:command", "Fit the numbers of a profile to measurements."),
    "schema": ("mapsearch.cli.schema:command", "Print the JSON Schema of an input file or of the answer."),
    "completion": ("mapsearch.cli.completion:command", "Print the completion script of a shell."),
}
"""Command: where it lives, and its line in `mapsearch --help` (known without importing it)."""


class LazyGroup(click.Group):
    """A group that knows the names of its commands and imports one only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        found: click.Command = getattr(importlib.import_module(module), attribute)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest command when there is none of that name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no command {args[0]!r}{near_miss(args[0], COMMANDS)}; commands: {', '.join(COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Command names, without importing them."""
        named = [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        return named or click.Command.shell_complete(self, ctx, incomplete)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Start with: mapsearch solve --topology asic.yaml",
)
@click.version_option(__version__, prog_name="mapsearch", message="%(prog)s %(version)s")
def cli() -> None:
    """Search the parallel mappings of a mixture-of-experts training run, and prove the ranking.

    Exit codes: 0 found, 2 bad input, 3 proven infeasible, 4 stopped without a mapping or without the proof that
    was required, 5 a backend is missing, 130 interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code; a bug keeps its traceback (exit 1)."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a name still gets the rest
    try:
        code = _invoke(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader has left (`| head`): nothing more to say, and nothing to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.FOUND)
    except (MapsearchError, click.ClickException, click.Abort, KeyboardInterrupt) as problem:
        return int(_tell(problem))


def _tell(problem: BaseException) -> ExitCode:
    """Say on stderr what went wrong, and the exit code that it earns."""
    if isinstance(problem, MapsearchError):
        _say(str(problem))
        return problem.exit_code
    if isinstance(problem, click.exceptions.NoArgsIsHelpError):
        print(problem.format_message(), file=sys.stderr)
        return ExitCode.BAD_INPUT
    if isinstance(problem, click.ClickException):
        _say(_usage_sentence(problem) if isinstance(problem, click.UsageError) else problem.format_message())
        return ExitCode.BAD_INPUT
    _say("interrupted")
    return ExitCode.INTERRUPTED


def _invoke(arguments: list[str]) -> int:
    """As click's own `main`, which would turn an interrupt and a closed pipe into exit code 1."""
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        return shell_complete(cli, {}, "mapsearch", COMPLETE_VARIABLE, instruction)
    try:
        with cli.make_context("mapsearch", arguments) as context:
            result: Any = cli.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    return int(result) if isinstance(result, int) else int(ExitCode.FOUND)


def _say(sentence: str) -> None:
    """One line on stderr, whatever stood in the message; what is endless is cut in the middle."""
    line = " ".join(sentence.split())
    if len(line) > LONGEST_SENTENCE:
        line = f"{line[: LONGEST_SENTENCE // 2]} ... {line[-LONGEST_SENTENCE // 2 :]}"
    print(f"mapsearch: {line}", file=sys.stderr)


def _usage_sentence(problem: click.UsageError) -> str:
    message = problem.format_message().rstrip(".")
    path = problem.ctx.command_path if problem.ctx else "mapsearch"
    return f"{message[:1].lower()}{message[1:]} (see {path} --help)"


if __name__ == "__main__":
    sys.exit(main())
