"""The inside of a node from pairwise relations: islands of fast links, and the PCIe tree that nearness tells.

Contents: Relation, Part, settled, inside_of, NEARNESS.

`nvidia-smi topo -m` and its like name for each pair how near it is: fast links (and how many), or the place in the
PCIe tree where the paths meet. Nearness is a tree, so a table that is none contradicts itself.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mapsearch.topologies.importers.base import Inside, Link, LinkKind, Repairs, Vertex
from mapsearch.topologies.importers.evenness import parts
from mapsearch.topologies.importers.matrix import Word

NEARNESS = {"PIX": 1, "PXB": 2, "PHB": 3, "NODE": 4, "SYS": 5}
"""Where two PCIe paths meet: one switch, several, the root complex, the NUMA node, the link between sockets."""
MOST_LINKS = 18
"""NVLinks of one device, H100 to B300 (datasheets); a row that adds up to more goes through switches."""
_WORDS = {1: "pcie", 2: "pcie", 3: "root", 4: "numa"}


@dataclass(frozen=True)
class Relation:
    """What joins two parts: so many fast links, or a nearness in the PCIe tree."""

    fast: LinkKind | None = None
    count: int = 0
    nearness: int = 0
    switched: bool = False
    """The format itself says that a switch lies between."""

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Larger is closer."""
        return self.fast is not None, self.count, -self.nearness


@dataclass(frozen=True)
class Part:
    """A row of the table."""

    name: str
    kind: str
    """`device` or `nic`."""
    numa: str = ""
    hint: str = ""


def settled(
    cells: Mapping[tuple[str, str], Word],
    names: Sequence[str],
    relation: Mapping[tuple[str, str], Relation],
    repairs: Repairs,
    *,
    selves: frozenset[str],
) -> dict[tuple[str, str], Relation]:
    """One relation for each pair (in the order of names), after both halves of the table were compared.

    `selves`: what the diagonal holds. Raises InputError where the halves differ, unless repairs are allowed.
    """
    result: dict[tuple[str, str], Relation] = {}
    for name in names:
        own = cells.get((name, name))
        if own is not None and own.text not in selves:
            repairs.mend(
                f"{name} to itself is {own.text[:20]!r} and not {' or '.join(sorted(selves))} (a shifted row?)",
                "ignored",
                line=own.line,
                column=own.column,
            )
    for a, b in itertools.combinations(names, 2):
        found = [relation[pair] for pair in ((a, b), (b, a)) if pair in relation]
        if len(found) == 2 and found[0] != found[1]:
            here, there = cells[a, b], cells[b, a]
            weaker = min(found, key=lambda one: one.rank)
            kept = here if weaker == found[0] else there
            repairs.mend(
                f"{a} to {b} is {here.text} (line {here.line}, column {here.column}) but {b} to {a} is {there.text}",
                f"taken as {kept.text}, the weaker",
                line=there.line,
                column=there.column,
            )
            found = [weaker]
        if found:
            result[a, b] = found[0]
    return result


def inside_of(
    format_: str,
    rows: Sequence[Part],
    pairs: Mapping[tuple[str, str], Relation],
    repairs: Repairs,
    *,
    line: int,
    notes: Sequence[str] = (),
) -> Inside:
    """The inside of a node from its parts and one relation for each pair. Raises InputError on contradictions."""
    builder = _Builder(list(rows), pairs, repairs, line)
    builder.scale_up()
    builder.tree()
    return Inside(
        format=format_,
        vertices=tuple(builder.vertices),
        links=tuple(builder.links),
        notes=(*notes, *builder.notes, *repairs.notes),
    )


class _Builder:
    def __init__(
        self, rows: list[Part], pairs: Mapping[tuple[str, str], Relation], repairs: Repairs, line: int
    ) -> None:
        self.rows = rows
        self.pairs = pairs
        self.repairs = repairs
        self.line = line
        self.notes: list[str] = []
        self.vertices = [
            Vertex(part.name, "nic" if part.kind == "nic" else "device", numa=part.numa, hint=part.hint)
            for part in rows
        ]
        self.links: list[Link] = []

    def scale_up(self) -> None:
        """Islands of fast links: direct, or through switches when a device would have more links than it can have."""
        fast = {pair: one for pair, one in self.pairs.items() if one.fast}
        kinds = {part.name: part.kind for part in self.rows}
        for a, b in list(fast):
            if "nic" in (kinds[a], kinds[b]):
                self.repairs.mend(f"{a} and {b}: a NIC has no {fast[a, b].fast} links", "ignored", line=self.line)
                del fast[a, b]
        for kind in sorted({one.fast for one in fast.values() if one.fast}):
            self._islands(kind, {pair: one for pair, one in fast.items() if one.fast == kind})

    def _islands(self, kind: LinkKind, fast: Mapping[tuple[str, str], Relation]) -> None:
        islands = [group for group in _groups([part.name for part in self.rows], fast) if len(group) > 1]
        for number, island in enumerate(islands):
            inner = {pair: fast[pair] for pair in itertools.combinations(island, 2) if pair in fast}
            totals: dict[str, int] = defaultdict(int)
            for (a, b), one in inner.items():
                totals[a] += one.count
                totals[b] += one.count
            if any(one.switched for one in inner.values()) or max(totals.values()) > MOST_LINKS:
                self._switched(kind, island, inner, "" if len(islands) == 1 else str(number))
            else:
                self.links += [Link(a, b, kind, count=one.count) for (a, b), one in inner.items()]

    def _switched(
        self, kind: LinkKind, island: list[str], inner: Mapping[tuple[str, str], Relation], number: str
    ) -> None:
        """All devices of an island reach the same switches, each with the most links that its row shows."""
        own = {name: max(one.count for pair, one in inner.items() if name in pair) for name in island}
        for a, b in itertools.combinations(island, 2):
            one = inner.get((a, b))
            least = min(own[a], own[b])
            other = self.pairs.get((a, b))
            if one is None and other is not None and other.fast:
                continue  # joined by another kind of link: two dies of one package
            if one is None or one.count != least:
                said = f"{one.count} links" if one else "no link"
                self.repairs.mend(
                    f"{a} and {b} have {said} between them, though both reach the same switches with {least}",
                    f"taken as {least}",
                    line=self.line,
                )
        switch = f"{kind}-switch{number}"
        self.vertices.append(Vertex(switch, "switch"))
        self.links += [Link(name, switch, kind, count=own[name]) for name in island]
        full = max(own.values())
        self.notes += [f"{name} has {own[name]} of {full} links" for name in island if own[name] < full]

    def tree(self) -> None:
        """The PCIe tree: parts whose paths meet below the same switch, root complex, NUMA node."""
        names = [part.name for part in self.rows]
        known = {pair: one.nearness for pair, one in self.pairs.items() if one.nearness}
        if not known and len(_groups(names, self.pairs)) == 1:
            return  # fast links join everything, and nothing is said of the rest
        groups = [(name, [name]) for name in names]
        for level in _WORDS:
            near = {pair for pair, nearness in known.items() if nearness <= level}
            joined = self._merged(groups, near, level)
            self._check(joined, known, level)
            groups = joined
        self._sockets(self._on_one_numa(groups, known))

    def _merged(
        self, groups: list[tuple[str, list[str]]], near: set[tuple[str, str]], level: int
    ) -> list[tuple[str, list[str]]]:
        """Groups of the next wider nearness, each with the vertex at its top; new ones where two or more meet."""
        owner = {name: top for top, members in groups for name in members}
        below = dict(groups)
        meeting = {(owner[a], owner[b]): level for a, b in sorted(near) if owner[a] != owner[b]}
        return [
            (tops[0] if len(tops) == 1 else self._joint(tops, level), [name for top in tops for name in below[top]])
            for tops in _groups([top for top, _ in groups], meeting)
        ]

    def _joint(self, tops: list[str], level: int) -> str:
        """A new vertex above some: a PCIe switch, a root complex, a NUMA node."""
        name = self._new(_WORDS[level])
        for top in tops:
            # Root complexes of one socket meet on its die, where no port is narrow: as wide as all below together.
            ports = sum(link.b == top for link in self.links if link.kind == "pcie") if top.startswith("root") else 1
            self.links.append(Link(top, name, "pcie", count=ports))
        return name

    def _new(self, word: str) -> str:
        name = f"{word}{sum(vertex.name.rstrip('0123456789') == word for vertex in self.vertices)}"
        self.vertices.append(Vertex(name, "switch"))
        return name

    def _check(self, groups: list[tuple[str, list[str]]], known: Mapping[tuple[str, str], int], level: int) -> None:
        broken = next(_contradictions(groups, known, level), None)
        if broken:
            words = {rank: word for word, rank in NEARNESS.items()}
            self.repairs.mend(
                f"{broken[0]} and {broken[1]} are {words[known[broken]]}, but through others they are {words[level]} "
                "or nearer, which no PCIe tree can be",
                f"taken as {words[level]}",
                line=self.line,
            )

    def _on_one_numa(
        self, groups: list[tuple[str, list[str]]], known: Mapping[tuple[str, str], int]
    ) -> list[tuple[str, list[str]]]:
        """Groups joined by their NUMA node, where the table names only fast links and so hides the tree."""
        near = {
            (a.name, b.name) for a, b in itertools.combinations(self.rows, 2) if a.numa and a.numa == b.numa
        } - set(known)  # fmt: skip
        owner = {name: index for index, (_, members) in enumerate(groups) for name in members}
        trial = _groups([str(index) for index in range(len(groups))],
                        {(str(owner[a]), str(owner[b])): 0 for a, b in sorted(near)})  # fmt: skip
        members = [("", [name for index in one for name in groups[int(index)][1]]) for one in trial]
        if next(_contradictions(members, known, 4), None):
            self.notes.append("NUMA nodes do not go with the PCIe relations and are not used")
            return groups
        return self._merged(groups, near, 4)

    def _sockets(self, groups: list[tuple[str, list[str]]]) -> None:
        """What is still apart meets across the links between sockets."""
        if len(groups) < 2:
            return
        ends = []
        for top, members in groups:
            if [top] == members:  # a part alone on its socket
                end = self._new("numa")
                self.links.append(Link(top, end, "pcie"))
                ends.append(end)
            else:
                ends.append(top)
        self.links += [Link(a, b, "smp") for a, b in itertools.combinations(ends, 2)]


def _contradictions(
    groups: Sequence[tuple[str, list[str]]], known: Mapping[tuple[str, str], int], level: int
) -> Iterator[tuple[str, str]]:
    """Pairs of one group that are said to be farther apart than the group is wide."""
    owner = {name: index for index, (_, members) in enumerate(groups) for name in members}
    return (pair for pair, rank in known.items() if rank > level and owner[pair[0]] == owner[pair[1]])


def _groups(names: Sequence[str], pairs: Mapping[tuple[str, str], object]) -> list[list[str]]:
    """Connected groups of names, each in the order of the names."""
    place = {name: index for index, name in enumerate(names)}
    found = parts(names, [Link(a, b, "pcie") for a, b in pairs])
    return [sorted(group, key=place.__getitem__) for group in found]
