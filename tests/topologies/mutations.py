"""Texts as they get broken: cut, doubled, shuffled, with numbers and words that do not belong there."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

WORDS = (
    "", "0", "-1", "1", "2", "18", "64", "999999999", "1e309", "-0", "NaN", "X", "NV18", "NV0", "NV99", "SYS", "PIX",
    "GPU0", "GPU1", "GPU999", "NIC0", "XGMI", "PCIE", "HCCS", "NA", "N/A", "null", "~", "[]", "{}", "[1-999999999]",
    "n[1-3]", "n[3-1]", "Switches=", "Nodes=", "SwitchName=", "BlockName=", "Block", "&a", "*a", "!!python/x:y",
    "---", "- ", ": ", "#", "=", ",", '"', "'", "<", ">", "</", "/>", "<!DOCTYPE a>", "<!ENTITY a 'b'>", "&a;", "]]>",
    "busid=\"0000:11:00.0\"", "count=\"0\"", "speed=\"-5\"", "link_speed=\"64\"", "\t", "\n", "\n\n", " ", "\x1b[4m",
    "\x1b[", "\x00", "\x85", "\u2028", "é", "\U0001f600", "\ud800", "٣", "²", "0x41", "1_000", "١٢",
    "true", "4xHDR", "lid 5", "(", ")", "[", "]", "{", "}",
)  # fmt: skip
_NUMBER = re.compile(r"\d+")


def mutated(texts: Sequence[str], seed: int) -> str:
    """One of the texts with one to eight changes; the same seed gives the same text."""
    chance = random.Random(seed)
    text = chance.choice(texts)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        text = chance.choice(_CHANGES)(text, texts, chance)[:200_000]
    return text


def _span(text: str, chance: random.Random, most: int = 200) -> tuple[int, int]:
    start = chance.randint(0, len(text))
    return start, min(len(text), start + chance.randint(0, most))


def _cut(text: str, texts: Sequence[str], chance: random.Random) -> str:
    start, end = _span(text, chance)
    return text[:start] + text[end:]


def _end(text: str, texts: Sequence[str], chance: random.Random) -> str:
    return text[: chance.randint(0, len(text))]


def _double(text: str, texts: Sequence[str], chance: random.Random) -> str:
    start, end = _span(text, chance)
    return text[:end] + text[start:end] * chance.choice((1, 1, 2, 50)) + text[end:]


def _word(text: str, texts: Sequence[str], chance: random.Random) -> str:
    start, end = _span(text, chance, chance.choice((0, 1, 5)))
    return text[:start] + chance.choice(WORDS) + text[end:]


def _token(text: str, texts: Sequence[str], chance: random.Random) -> str:
    """A word of the text becomes another one, of the text itself or a foreign one."""
    parts = re.split(r"(\s+|[=,\"<>\[\]{}:])", text)
    place = chance.randrange(len(parts))
    parts[place] = chance.choice((chance.choice(parts), chance.choice(WORDS)))
    return "".join(parts)


def _number(text: str, texts: Sequence[str], chance: random.Random) -> str:
    found = list(_NUMBER.finditer(text))
    if not found:
        return text
    match = chance.choice(found)
    new = chance.choice(("0", "1", "7", "-3", "4096", "10" * 12, "9" * 400, str(int(match.group()[:9]) + 1), "1.5"))
    return text[: match.start()] + new + text[match.end() :]


def _lines(text: str, texts: Sequence[str], chance: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    here, there = chance.randrange(len(lines)), chance.randrange(len(lines))
    if chance.random() < 0.5:
        lines[here], lines[there] = lines[there], lines[here]
    else:
        del lines[here]
    return "".join(lines)


def _splice(text: str, texts: Sequence[str], chance: random.Random) -> str:
    other = chance.choice(texts)
    return text[: chance.randint(0, len(text))] + other[chance.randint(0, len(other)) :]


_CHANGES = (_cut, _end, _double, _word, _word, _token, _token, _token, _number, _number, _lines, _splice)
