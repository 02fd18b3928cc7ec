"""Where a value stands in a YAML or JSON document: line and column by its path.

Contents: Marks.
"""

from __future__ import annotations

import yaml

from mapsearch.errors import InputError
from mapsearch.topologies.importers.base import fault
from mapsearch.topologies.importers.hostlist import Listed

Path = tuple[str | int, ...]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Marks:
    """Lines and columns of the values of a text that `documents` has accepted; looked up only when asked for.

    A path begins with the number of the document, when the text has several (Kubernetes' `---`).
    """

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self._documents: list[yaml.Node] | None = None
        self._values: dict[int, dict[str, yaml.Node]] = {}
        """Values of a mapping by key, for each mapping that was asked."""

    def node(self, path: Path) -> yaml.Node | None:
        """The node at a path, or the nearest one that holds it; None when the text cannot be taken apart again."""
        if self._documents is None:
            try:
                self._documents = [node for node in yaml.compose_all(self.text, Loader=_Loader) if node is not None]
            except (yaml.YAMLError, ValueError, RecursionError):
                self._documents = []
        here: yaml.Node | None = None
        several: list[yaml.Node] = self._documents
        for depth, part in enumerate(path):
            found: yaml.Node | None = None
            if depth == 0:
                found = several[part] if isinstance(part, int) and part < len(several) else None
            elif isinstance(here, yaml.SequenceNode) and isinstance(part, int) and part < len(here.value):
                found = here.value[part]
            elif isinstance(here, yaml.MappingNode):
                found = self._of(here).get(str(part))
            if found is None:
                return here
            here = found
        return here

    def _of(self, mapping: yaml.MappingNode) -> dict[str, yaml.Node]:
        if id(mapping) not in self._values:
            self._values[id(mapping)] = {str(key.value): value for key, value in mapping.value}
        return self._values[id(mapping)]

    def at(self, *path: str | int) -> tuple[int, int]:
        """Line and column of a value, both from 1; zeros when not known."""
        node = self.node(path)
        return (node.start_mark.line + 1, node.start_mark.column + 1) if node is not None else (0, 0)

    def fault(self, problem: str, *path: str | int) -> InputError:
        """An error at a value."""
        line, column = self.at(*path)
        return fault(problem, file=self.file, line=line, column=column)

    def listed(self, text: str, *path: str | int) -> Listed:
        """A text value whose letters have a place: exact in a value of one line without escapes."""

        def where(offset: int) -> tuple[int, int]:
            node = self.node(path)
            line, column = self.at(*path)
            quoted = isinstance(node, yaml.ScalarNode) and node.style in ("'", '"')
            inline = isinstance(node, yaml.ScalarNode) and node.start_mark.line == node.end_mark.line
            return line, column + (offset + quoted if inline else 0)

        return Listed(text, where)
