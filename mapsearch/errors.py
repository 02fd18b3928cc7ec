"""Errors a user can cause, and the exit code each one carries.

Contents: ExitCode, MapsearchError, InputError, UsageError, UnknownName, MissingFact, BackendMissing, Stopped,
near_miss, listed.

A message is one sentence: what is wrong, how much, and what to do; it names the file and the field.
Anything that is not a `MapsearchError` is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable


class ExitCode(enum.IntEnum):
    """Exit codes of the command line (documented in docs/reference/exit-codes.md)."""

    FOUND = 0
    BUG = 1
    BAD_INPUT = 2
    INFEASIBLE = 3
    STOPPED = 4
    BACKEND_MISSING = 5
    INTERRUPTED = 130


class MapsearchError(Exception):
    """Base of every error that is the user's to mend; carries its exit code."""

    exit_code: ExitCode = ExitCode.BAD_INPUT


class InputError(MapsearchError):
    """A file or value is wrong: `file: field: problem` in one sentence."""

    def __init__(self, problem: str, *, file: str | None = None, field: str | None = None) -> None:
        self.problem = problem
        self.file = file
        self.field = field
        super().__init__(": ".join(part for part in (file, field, problem) if part))

    def within(self, file: str) -> InputError:
        """The same error, naming the file when it did not know it yet."""
        return self if self.file else InputError(self.problem, file=file, field=self.field)


class UsageError(InputError):
    """A command-line option is wrong."""


class UnknownName(InputError):
    """A document was asked for that is neither a file nor built in."""


class MissingFact(InputError):
    """A fact is needed and was not given; nothing is guessed in its place."""


class BackendMissing(MapsearchError):
    """A solver library that was asked for is not installed or cannot run."""

    exit_code = ExitCode.BACKEND_MISSING


class Stopped(MapsearchError):
    """Work ended before its end by what is neither a wrong input nor a bug: the machine it ran on has gone."""

    exit_code = ExitCode.STOPPED


def listed(values: Iterable[object]) -> str:
    """Accepted values as a readable list: `a, b or c`."""
    words = [str(value) for value in values]
    if len(words) <= 1:
        return "".join(words)
    return f"{', '.join(words[:-1])} or {words[-1]}"


def near_miss(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt word: ` (did you mean 'x'?)`, or nothing when none is near."""
    match = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean '{match[0]}'?)" if match else ""
