"""Reading YAML and JSON documents that strangers wrote: safely, strictly, and with messages that help.

Contents: read_text, exists, is_file, load, parse, parse_all, dump.

Refused with one sentence: a directory, a missing or empty file, a file over the size limit, bytes that are not
UTF-8, YAML aliases (the alias bomb), deep nesting, duplicate keys, custom tags, NaN and infinities.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from mapsearch.errors import InputError

MAX_BYTES = 64 * 2**20
MAX_NODES = 2_000_000
MAX_DEPTH = 64
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(_Loader):  # type: ignore[misc,valid-type]
    """A safe loader that refuses duplicate keys and leaves dates as text."""


def _mapping(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            raise yaml.MarkedYAMLError(
                problem="merge keys (<<) are not accepted; write the values out", problem_mark=key_node.start_mark
            )
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str | int | float | bool):
            raise yaml.MarkedYAMLError(problem="a key must be a plain word", problem_mark=key_node.start_mark)
        if key in seen:
            raise yaml.MarkedYAMLError(problem=f"key {key!r} stands twice", problem_mark=key_node.start_mark)
        seen.add(key)
    pairs = [(loader.construct_object(k, deep=True), loader.construct_object(v, deep=True)) for k, v in node.value]
    return dict(pairs)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_StrictLoader.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: loader.construct_scalar(node))


def read_text(path: Path | str, *, errors: str = "strict") -> str:
    """The text of a file. Raises InputError naming the file when it cannot be read as text.

    `errors="replace"` takes text with stray bytes, such as a log, as it is.
    """
    path = Path(path)
    name = str(path)
    if exists(path) and path.is_dir():
        raise InputError("is a directory; name a YAML or JSON file in it", file=name)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(
                f"has {size / 2**20:,.0f} MiB; documents over {MAX_BYTES // 2**20} MiB are not read", file=name
            )
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError("no such file", file=name) from None
    except OSError as problem:
        raise InputError(f"cannot be read: {problem.strerror or problem}", file=name) from None
    try:
        text = data.decode("utf-8-sig", errors)
    except UnicodeDecodeError as problem:
        raise InputError(
            f"is not UTF-8 text (byte {problem.start} is 0x{data[problem.start]:02x}); save it as UTF-8", file=name
        ) from None
    if not text.strip():
        raise InputError("is empty", file=name)
    return text


def exists(path: Path) -> bool:
    """Whether something is there; a name that no file can have is not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """Whether a file, and not a folder, is there."""
    return exists(path) and not path.is_dir()


def load(path: Path | str) -> Any:
    """A YAML or JSON document as plain dicts, lists and scalars. Raises InputError."""
    return parse(read_text(path), file=str(path), json_text=str(path).lower().endswith(".json"))


def parse(text: str, *, file: str, json_text: bool = False) -> Any:
    """Parse text as YAML (or JSON), strictly. Raises InputError with line and column."""
    return _parsed(_parse_json if json_text else _parse_yaml, text, file, "JSON" if json_text else "YAML")


def parse_all(text: str, *, file: str) -> list[Any]:
    """Every document of a YAML text that `---` parts, empty ones left out. Raises InputError with line and column."""
    documents = _parsed(_parse_yaml_all, text, file, "YAML")
    return [document for document in documents if document is not None]


def _parsed(parser: Callable[[str], Any], text: str, file: str, kind: str) -> Any:
    try:
        document = parser(text)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"is not valid YAML{where}: {problem.problem or problem.context}", file=file) from None
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        first_line = str(problem).splitlines()[0] if str(problem) else "nested too deeply"
        raise InputError(f"is not valid {kind}: {first_line}", file=file) from None
    _refuse_not_finite(document, file, "")
    return document


def _parse_yaml(text: str) -> Any:
    _check_yaml(text)
    return yaml.load(text, Loader=_StrictLoader)


def _parse_yaml_all(text: str) -> list[Any]:
    _check_yaml(text)
    return list(yaml.load_all(text, Loader=_StrictLoader))


def _check_yaml(text: str) -> None:
    """Refuse aliases, and more depth or values than a document needs, before anything is built."""
    depth = 0
    for nodes, event in enumerate(yaml.parse(text, Loader=_Loader)):
        mark: Any = event.start_mark
        if isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(
                problem="aliases (*name) are not accepted; write the value out", problem_mark=mark
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH or nodes > MAX_NODES:
            raise yaml.MarkedYAMLError(
                problem=f"nested more than {MAX_DEPTH} deep or over {MAX_NODES:,} values",
                problem_mark=mark,
            )


def _parse_json(text: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise ValueError(f"key {key!r} stands twice")
            result[key] = value
        return result

    return json.loads(text, object_pairs_hook=unique)


def _refuse_not_finite(value: Any, file: str, path: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_not_finite(item, file, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_not_finite(item, file, f"{path}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{value} is not a finite number", file=file, field=path)


def dump(document: Any) -> str:
    """YAML text of plain data, keys in the given order, always the same bytes for the same data."""
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100))
