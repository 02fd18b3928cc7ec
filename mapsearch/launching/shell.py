"""Flags in shell scripts, as far as they can be read without running them: words, variables, defaults, arrays.

Contents: Flags, flags_of.

Every assignment and every word counts in the order of the file, whatever branch it stands in; where two disagree the
last one counts and both lines are said.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from mapsearch.errors import InputError

_VARIABLE = re.compile(r"\$\{(\w+)(?::?[-=]([^{}]*))?\}|\$(\w+)")
_ARITHMETIC = re.compile(r"\$\(\(([^()]*(?:\([^()]*\)[^()]*)*)\)\)")
_ASSIGNED = re.compile(r"(?:export\s+|local\s+)?(\w+)\+?=(.*)", re.DOTALL)
_FLAG = re.compile(r"--([A-Za-z][\w-]*)(?:[=:](.*))?", re.DOTALL)
_SLURM = re.compile(r"^#SBATCH\s+--([\w-]+)[= ](\S+)", re.MULTILINE)
_BRANCH = re.compile(r"^\s*(if|case|elif)\s.*\n(?:(?!\s*fi\b).*\n)*?.*--[a-z]", re.MULTILINE)
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
LONGEST = 2_000_000
"""Characters of a value after its variables are put in."""


@dataclass
class Flags:
    """Flags of a script with their words and lines, and the variables that it sets."""

    given: dict[str, list[str]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def where(self, name: str) -> str:
        """How a message calls a flag."""
        return f"line {self.lines[name]}: --{name}" if name in self.lines else f"--{name}"

    def put(self, name: str, words: list[str], line: int) -> None:
        """One occurrence of a flag."""
        before = self.given.get(name)
        if before is not None and before[:1] != words[:1]:
            shown = [" ".join(one) or "on" for one in (before, words)]
            self.notes.append(
                f"--{name} is {shown[0]} on line {self.lines[name]} and {shown[1]} on line {line}; the last one counts"
            )
        self.given[name], self.lines[name] = words, line


def flags_of(text: str, preset: dict[str, str]) -> Flags:
    """All flags of a script; variables in `preset` win over the script's own. Raises InputError."""
    flags = Flags(variables=dict(preset))
    for key, value in _SLURM.findall(text):
        flags.variables.setdefault(f"SBATCH_{key.upper().replace('-', '_')}", value)
    open_: tuple[str, list[str], int] | None = None
    for word, line in _words(text):
        assigned = _ASSIGNED.fullmatch(word)
        pieces = [word]
        if assigned and not word.startswith("-"):
            name, value = assigned[1], _expanded(assigned[2], flags.variables, line)
            pieces = value.split() if "--" in value else []
            if name not in preset and not pieces:
                flags.variables[name] = value
        elif re.search(r"\s--|^\s*--.*\s", word):
            pieces = word.split()
        for piece in pieces:
            flag = _FLAG.fullmatch(piece)
            if flag:
                if open_ is not None:
                    flags.put(*open_)
                open_ = (
                    flag[1].replace("_", "-"),
                    [_expanded(flag[2], flags.variables, line)] if flag[2] else [],
                    line,
                )
            elif open_ is not None:
                value = _expanded(piece, flags.variables, line)
                open_[1].extend(part for part in [value] if "--" not in part)
        if (assigned or len(pieces) > 1) and open_ is not None:  # a flag ends with the word that holds it
            flags.put(*open_)
            open_ = None
    if open_ is not None:
        flags.put(*open_)
    if _BRANCH.search(text):
        flags.notes.append("the script has branches; flags of all of them are taken as set")
    return flags


def _words(text: str) -> Iterator[tuple[str, int]]:
    """Words of a shell text with their lines: quotes taken off, comments and line breaks left out."""
    at, line, word, started, first = 0, 1, [], False, 1
    end = len(text)
    while at <= end:
        mark = text[at] if at < end else "\n"
        if mark == "\\" and at + 1 < end:
            line += text[at + 1] == "\n"
            if text[at + 1] != "\n":
                word.append(text[at + 1])
                started = True
            at += 2
            continue
        if mark == "#" and not started:
            at = text.find("\n", at)
            at = end if at < 0 else at
            continue
        first = first if started else line
        if mark in "'\"":
            close = _closing(text, at, line)
            word.append(text[at + 1 : close].replace("\\\n", " ") if mark == '"' else text[at + 1 : close])
            line += text.count("\n", at, close)
            started, at = True, close + 1
            continue
        if text.startswith(("$(", "${"), at):
            close = _matching(text, at + 1)
            word.append(text[at : close + 1])
            line += text.count("\n", at, close)
            started, at = True, close + 1
            continue
        if mark.isspace() or mark in "();&|,[]":
            if started:
                yield "".join(word), first
            word, started = [], False
            line += mark == "\n"
        else:
            word.append(mark)
            started = True
        at += 1


def _closing(text: str, at: int, line: int) -> int:
    """Where a quoted part ends. Raises InputError."""
    quote, here = text[at], at + 1
    while here < len(text) and text[here] != quote:
        here += 2 if text[here] == "\\" and quote == '"' else 1
    if here >= len(text):
        raise InputError(f"line {line} opens a quote ({quote}) that no line closes")
    return here


def _matching(text: str, at: int) -> int:
    """Where a bracket closes that opens at `at`; the last character when none does."""
    pairs, depth = {"(": ")", "{": "}"}, 0
    opened, closed = text[at], pairs[text[at]]
    for here in range(at, len(text)):
        depth += (text[here] == opened) - (text[here] == closed)
        if depth == 0:
            return here
    return len(text) - 1


def _expanded(value: str, variables: dict[str, str], line: int) -> str:
    """A value with the variables that are known put in, and sums worked out. Raises InputError."""

    def known(found: re.Match[str]) -> str:
        name, default = found[1] or found[3], found[2]
        return variables.get(name, found[0] if default is None else default)

    def worked_out(found: re.Match[str]) -> str:
        names = re.sub(r"[A-Za-z_]\w*", lambda name: variables.get(name[0], name[0]), found[1])
        return str(_sum(names)) if re.fullmatch(r"[\d\s()+*/%-]+", names) and len(names) < 200 else found[0]

    for _ in range(8):
        before = value
        value = _ARITHMETIC.sub(worked_out, _VARIABLE.sub(known, value))
        if len(value) > LONGEST:
            raise InputError(f"line {line}: its variables make a value of over {LONGEST:,} characters")
        if value == before:
            break
    return value


def _sum(text: str) -> int | str:
    """The value of sums and products of whole numbers; the text itself when it is something else."""
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return text


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return int(_OPERATORS[type(node.op)](_value(node.left), _value(node.right)))
    raise ValueError("no sum of whole numbers")
