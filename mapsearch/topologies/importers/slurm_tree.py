"""What Slurm's topology files say, whichever way they are written: switches, blocks, rings and 3D tori of nodes.

Contents: SwitchEntry, BlockEntry, Tree, tree_of, blocks_of, checked_sizes, block_labels, ring_links, torus_links,
tree_notes.

Slurm's rules, and what follows here: a name of a switch is unique, a child must be defined, the whole is "a tree" or
has several roots (Slurm: fatal errors otherwise); a switch with both nodes and child switches is an error; a node on
two leaf switches draws a warning, since Slurm cannot say which NIC goes where. Nothing of this is guessed: broken files
are refused, or repaired when told to. LinkSpeed has no unit and Slurm does not use it, so it is no bandwidth.

Source: topology.conf(5), topology.yaml(5); Slurm's topology plugins tree, block, ring, torus3d (26.05).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product

from mapsearch.topologies.importers.base import MAX_NODES, Block, Link, Repairs, fault
from mapsearch.topologies.importers.hostlist import MAX_NAME_LENGTH, HostLists, Listed, short


@dataclass
class SwitchEntry:
    """A switch as written."""

    name: str
    line: int
    column: int
    switches: Listed | None = None
    nodes: Listed | None = None


@dataclass
class BlockEntry:
    """A block, a ring or a torus as written."""

    name: str
    line: int
    column: int
    nodes: Listed | None = None


@dataclass
class Tree:
    """Switches with their children and nodes, by name and in the order of the file."""

    children: dict[str, list[str]] = field(default_factory=dict)
    nodes: dict[str, list[str]] = field(default_factory=dict)

    def node_names(self) -> list[str]:
        """Nodes in the order of the file."""
        return [node for nodes in self.nodes.values() for node in nodes]

    def links(self) -> list[Link]:
        """From every node and switch up to its switch."""
        ups = [(node, switch) for switch, nodes in self.nodes.items() for node in nodes]
        ups += [(child, switch) for switch, children in self.children.items() for child in children]
        return [Link(a, b, "network") for a, b in ups]

    def parents(self) -> dict[str, list[str]]:
        """The switches above each switch."""
        above: dict[str, list[str]] = {switch: [] for switch in self.children}
        for switch, children in self.children.items():
            for child in children:
                above[child].append(switch)
        return above


def tree_of(entries: Iterable[SwitchEntry], lists: HostLists) -> Tree:
    """The switches of a file, checked. Raises InputError."""
    repairs = lists.repairs
    tree = Tree()
    written: list[tuple[SwitchEntry, list[str]]] = []
    owners: dict[str, str] = {}
    for entry in entries:
        _check_name(entry, repairs)
        known = entry.name in tree.children
        if known:
            _mend(repairs, entry, f"switch {entry.name} stands twice", "its lists put together")
        tree.children.setdefault(entry.name, [])
        own = tree.nodes.setdefault(entry.name, [])
        own.extend(_new_nodes(entry.name, entry.nodes, owners, lists))
        written.append((entry, lists.names(entry.switches, "switch") if entry.switches else []))
        if entry.nodes and entry.switches:
            _mend(repairs, entry, f"switch {entry.name} has both nodes and child switches", "both kept")
    for entry, names in written:
        _add_children(tree, entry, names, repairs)
    clash = next((node for node in owners if node in tree.children), None)
    if clash is not None:
        raise fault(f"{clash} is the name of a node and of a switch; rename one", file=repairs.file)
    _mend_mutual(tree, [entry for entry, _ in written], repairs)
    _refuse_circles(tree, repairs)
    return tree


def _new_nodes(switch: str, listed: Listed | None, owners: dict[str, str], lists: HostLists) -> list[str]:
    """The nodes of a list that stand nowhere before; `owners` learns them."""
    if listed is None:
        return []
    fresh: list[str] = []
    again: list[str] = []
    elsewhere: list[str] = []
    for node in lists.names(listed, "node"):
        if node not in owners:
            owners[node] = switch
            fresh.append(node)
        else:
            (again if owners[node] == switch else elsewhere).append(node)
    line, column = listed.where(0)
    if again:
        what = f"{_some(again)} {_stand(again)} twice under {switch}"
        lists.repairs.mend(what, "counted once", line=line, column=column)
    if elsewhere:
        first = owners[elsewhere[0]]
        what = f"{_some(elsewhere)} {_stand(elsewhere)} under {switch} and under {first}, and NICs are not named"
        lists.repairs.mend(what, f"left under {first}", line=line, column=column)
    if len(owners) > MAX_NODES:
        what = f"names over {MAX_NODES:,} nodes, more than are read"
        raise fault(what, file=lists.repairs.file, line=line, column=column)
    return fresh


def _add_children(tree: Tree, entry: SwitchEntry, names: list[str], repairs: Repairs) -> None:
    own = tree.children[entry.name]
    seen = set(own)
    for name in names:
        if name not in tree.children:
            _mend(repairs, entry, f"switch {entry.name} has the child {name}, which no line defines", "left out")
        elif name == entry.name:
            _mend(repairs, entry, f"switch {name} is its own child", "left out")
        elif name in seen:
            _mend(repairs, entry, f"switch {name} stands twice under {entry.name}", "counted once")
        else:
            seen.add(name)
            own.append(name)


def _mend_mutual(tree: Tree, entries: list[SwitchEntry], repairs: Repairs) -> None:
    """Two switches that name each other as children: Slurm refuses that; the one with more children is the upper."""
    below = {switch: set(children) for switch, children in tree.children.items()}
    rank = {switch: (-len(children), place) for place, (switch, children) in enumerate(tree.children.items())}
    wrong = {
        (upper, lower)
        for upper, children in tree.children.items()
        for lower in children
        if upper in below[lower] and rank[upper] < rank[lower]
    }
    if not wrong:
        return
    first = {name: pair for pair in sorted(wrong, key=lambda pair: rank[pair[0]], reverse=True) for name in pair}
    entry = next(entry for entry in entries if entry.name in first)
    upper, lower = first[entry.name]
    more = f" (and {len(wrong) - 1:,} more pairs do)" if len(wrong) > 1 else ""
    _mend(
        repairs, entry, f"switches {upper} and {lower} each name the other as a child{more}, which makes no tree",
        "the one with more children taken as the upper one",
    )  # fmt: skip
    for switch, children in tree.children.items():
        tree.children[switch] = [child for child in children if (child, switch) not in wrong]


def _refuse_circles(tree: Tree, repairs: Repairs) -> None:
    """Switches from the leaves up: what is never reached stands above itself."""
    waits = {switch: len(children) for switch, children in tree.children.items()}
    above = tree.parents()
    ready = [switch for switch, count in waits.items() if count == 0]
    for switch in ready:
        for parent in above[switch]:
            waits[parent] -= 1
            if waits[parent] == 0:
                ready.append(parent)
    stuck = {switch for switch, count in waits.items() if count > 0}
    if not stuck:
        return
    here = next(switch for switch in tree.children if switch in stuck)
    places: dict[str, int] = {}
    while here not in places:
        places[here] = len(places)
        here = next(child for child in tree.children[here] if child in stuck)
    circle = [*list(places)[places[here] :], here]
    shown = circle if len(circle) <= 8 else [*circle[:4], "...", circle[-1]]
    raise fault(
        f"the switches {' > '.join(shown)} stand above each other in a circle; a tree has a top", file=repairs.file
    )


def blocks_of(entries: Iterable[BlockEntry], lists: HostLists, what: str = "block") -> list[Block]:
    """The blocks (rings, tori: `what`) of a file, each node in one; empty ones are refused. Raises InputError."""
    owners: dict[str, str] = {}
    members: dict[str, list[str]] = {}
    for entry in entries:
        _check_name(entry, lists.repairs)
        if entry.name in members:
            _mend(lists.repairs, entry, f"{what} {entry.name} stands twice", "its lists put together")
        nodes = _new_nodes(entry.name, entry.nodes, owners, lists)
        members.setdefault(entry.name, []).extend(nodes)
        if not members[entry.name]:
            _mend(lists.repairs, entry, f"{what} {entry.name} has no nodes", "left out")
    return [Block(name, tuple(nodes)) for name, nodes in members.items() if nodes]


def checked_sizes(sizes: list[int], count: int, repairs: Repairs, line: int, column: int) -> list[int]:
    """Block sizes: the planning base, then powers of two times it. Raises InputError.

    Source: topology.conf(5), BlockSizes. `-1` comes from a generator that found no block (topograph issue 468).
    """
    wrong = [size for size in sizes if size < 1]
    if wrong:
        what = f"block size {wrong[0]:,} is no number of nodes (1 or more)"
        if not count:
            raise fault(
                f"{what}, and the file names no block: what wrote it found none (topograph issue 468); "
                "add BlockName= lines, or label the nodes and generate it again",
                file=repairs.file, line=line, column=column,
            )  # fmt: skip
        repairs.mend(what, "the block sizes left out", line=line, column=column)
        return []
    good = sizes[:1]
    for size in sizes[1:]:
        ratio, rest = divmod(size, sizes[0])
        if rest or ratio & (ratio - 1) or size <= good[-1]:
            what = f"block size {size:,} is not a larger power of two times the base, {sizes[0]:,}"
            repairs.mend(what, "left out", line=line, column=column)
        else:
            good.append(size)
    return good


def block_labels(blocks: list[Block], sizes: list[int]) -> dict[str, str]:
    """Where each node sits: the larger blocks that Slurm makes of so many blocks in a row, then its block."""
    labels = {}
    for index, block in enumerate(blocks):
        larger = [f"blocks{size}-{index // (size // sizes[0])}" for size in reversed(sizes[1:])]
        place = "/".join([*larger, block.name.replace("/", "_")])
        labels.update(dict.fromkeys(block.nodes, place))
    return labels


def ring_links(rings: list[Block]) -> list[Link]:
    """Each node to the next, and the last to the first."""
    links = []
    for ring in rings:
        ends = ring.nodes[1:] if len(ring.nodes) == 2 else (*ring.nodes[1:], ring.nodes[0])
        links += [Link(a, b, "network") for a, b in zip(ring.nodes, ends, strict=False) if a != b]
    return links


def torus_links(nodes: tuple[str, ...], dims: tuple[int, int, int]) -> list[Link]:
    """A node to its next along x, y and z; both links of an axis of 2 go to the one neighbour.

    The place of a node in the list is x + X (y + Y z). Source: Slurm, topology/torus3d (torus3d_record.c).
    """
    x_size, y_size, _ = dims
    strides = (1, x_size, x_size * y_size)
    links = []
    for z, y, x in product(*(range(extent) for extent in reversed(dims))):
        here = x + y * strides[1] + z * strides[2]
        for place, extent, stride in zip((x, y, z), dims, strides, strict=True):
            if extent > 1 and not (extent == 2 and place == 1):
                there = here + ((place + 1) % extent - place) * stride
                links.append(Link(nodes[here], nodes[there], "network", count=2 if extent == 2 else 1))
    return links


def tree_notes(tree: Tree) -> Iterator[str]:
    """What the shape of a tree asks the reader to know, one sentence each."""
    above = tree.parents()
    empty = [switch for switch, children in tree.children.items() if not children and not tree.nodes[switch]]
    if empty:
        yield f"{_some(empty)} {'has' if len(empty) == 1 else 'have'} no nodes below"
    sizes = {len(nodes) for nodes in tree.nodes.values() if nodes}
    if len(sizes) > 1:
        yield f"uneven: leaf switches have {min(sizes)} to {max(sizes)} nodes"
    shared = [switch for switch, parents in above.items() if len(parents) > 1]
    if shared:
        tops = sorted({len(above[switch]) for switch in shared})
        many = str(tops[0]) if len(tops) == 1 else f"{tops[0]} to {tops[-1]}"
        yield f"several roots: {_some(shared)} {'has' if len(shared) == 1 else 'have'} {many} parents"
    depths = _depths(tree, above)
    if len(depths) > 1:
        yield f"unbalanced: nodes stand {min(depths)} to {max(depths)} switches below the top"


def _depths(tree: Tree, above: dict[str, list[str]]) -> set[int]:
    """How many switches stand between the top and a node, its own included."""
    depth = {switch: 1 for switch, parents in above.items() if not parents}
    waits = {switch: len(parents) for switch, parents in above.items()}
    ready = list(depth)
    for switch in ready:
        for child in tree.children[switch]:
            depth[child] = max(depth.get(child, 0), depth[switch] + 1)
            waits[child] -= 1
            if waits[child] == 0:
                ready.append(child)
    return {depth[switch] for switch, nodes in tree.nodes.items() if nodes}


def _check_name(entry: SwitchEntry | BlockEntry, repairs: Repairs) -> None:
    if len(entry.name) > MAX_NAME_LENGTH or not entry.name.isprintable() or " " in entry.name:
        what = f"{short(entry.name)!r} is no name: up to {MAX_NAME_LENGTH} letters without blanks are"
        raise fault(what, file=repairs.file, line=entry.line, column=entry.column)


def _mend(repairs: Repairs, entry: SwitchEntry | BlockEntry, problem: str, done: str) -> None:
    repairs.mend(problem, done, line=entry.line, column=entry.column)


def _stand(names: list[str]) -> str:
    return "stands" if len(names) == 1 else "stand"


def _some(names: list[str]) -> str:
    """`s0`, or `s0 and 3 more`."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"
