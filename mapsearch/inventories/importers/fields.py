"""Careful access to the keys of a foreign configuration: every key is read, known to be harmless, or refused.

Contents: Fields, overlaid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mapsearch.errors import InputError, MissingFact, listed

_MISSING = object()


class Fields:
    """The keys of one document, with what has been asked for and what was found missing."""

    def __init__(self, data: Mapping[str, Any], *, file: str, path: str = "") -> None:
        self._data, self._file, self._path = data, file, path
        self._read: set[str] = set()
        self.missing: list[str] = []
        self.notes: list[str] = []

    def over(self, defaults: Mapping[str, Any]) -> Fields:
        """The same fields with values for keys that are absent or null."""
        below = Fields({**self._data, **defaults}, file=self._file, path=self._path)
        below.notes = self.notes
        return below

    def problem(self, key: str, text: str) -> InputError:
        """An error that names this file and this key."""
        return InputError(text, file=self._file, field=f"{self._path}{key}")

    def get(self, *keys: str, default: Any = None) -> Any:
        """The value under the first of several names; all that are given must agree. None counts as not given."""
        found: dict[str, Any] = {}
        for key in keys:
            self._read.add(key)
            if self._data.get(key) is not None:
                found[key] = self._data[key]
        if not found:
            return default
        first, value = next(iter(found.items()))
        for key, other in found.items():
            if other != value:
                raise self.problem(key, f"is {other!r}, but {first} says {value!r} for the same thing")
        return value

    def need(self, *keys: str) -> Any:
        """A value that has no default: when absent its first name joins the list of what is missing."""
        value = self.get(*keys, default=_MISSING)
        if value is _MISSING:
            self.missing.append(keys[0])
            return None
        return value

    def whole(self, *keys: str, default: int | None = None, least: int = 1, most: int = 10**9) -> int:
        """A whole number within limits; needed when there is no default (1 stands in until `finish`)."""
        value = self.need(*keys) if default is None else self.get(*keys, default=default)
        if value is None:
            return max(1, least)
        name = next((key for key in keys if self._data.get(key) is not None), keys[0])
        if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
            raise self.problem(name, f"{value!r} is not a whole number")
        if value < least:
            raise self.problem(name, f"is {value}; the least accepted is {least}")
        if value > most:
            raise self.problem(name, f"is {value:.6g}; the most accepted is {most:,}")
        return int(value)

    def flag(self, *keys: str, default: bool | None = None) -> bool:
        """True or false; needed when there is no default."""
        value = self.need(*keys) if default is None else self.get(*keys, default=default)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.problem(keys[0], f"{value!r} is neither true nor false")
        return value

    def by_class(self, key: str, default: Any, owner: str) -> None:
        """Note that an absent key was taken from its architecture's published default."""
        if self._data.get(key) is None:
            word = str(default).lower() if isinstance(default, bool) else default
            self.notes.append(f"{key} is not in the file; {owner}'s own default, {word}, is used")

    def require(self) -> None:
        """Raise MissingFact, naming everything that has been asked for so far and is not there."""
        names = list(dict.fromkeys(self.missing))
        if not names:
            return
        many = len(names) > 1
        raise MissingFact(
            f"{'are' if many else 'is'} not in the file and nothing is guessed; add {'them' if many else 'it'}, or "
            f"write a completed model with: mapsearch model convert FILE --set {names[0]}=VALUE",
            file=self._file,
            field=listed(f"{self._path}{name}" for name in names).replace(" or ", " and "),
        )

    def finish(self, harmless: Iterable[str], patterns: re.Pattern[str]) -> None:
        """Refuse what is missing, and keys that could change the shape and that nobody has read."""
        self.require()
        known = self._read | set(harmless)
        for key, value in self._data.items():
            if key not in known and not patterns.search(str(key)) and _could_matter(value):
                raise self.problem(
                    str(key),
                    f"is {_short(value)}, a key that is not understood and that may change the model's shape; when it "
                    f"does not, take it out, or use: mapsearch model convert FILE --set {key}=null",
                )


def _could_matter(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value != 0
    return isinstance(value, list | dict) and bool(value)


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 40 else f"{text[:37]}..."


def overlaid(data: Mapping[str, Any], completed: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the user's own values over it; null takes a key away."""
    return {**data, **completed}
