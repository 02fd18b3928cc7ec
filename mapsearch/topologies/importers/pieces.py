"""Whether a fabric hangs together: the pieces that no link joins.

Contents: pieces, piece_notes, block_notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mapsearch.topologies.importers.base import Block, Link


def pieces(nodes: Sequence[str], switches: Sequence[str], links: Iterable[Link]) -> list[tuple[str, ...]]:
    """Nodes of every piece that links join, in the order of the nodes; pieces without a node are left out."""
    above = {name: name for name in (*nodes, *switches)}

    def top(name: str) -> str:
        while above[name] != name:
            above[name] = above[above[name]]
            name = above[name]
        return name

    for link in links:
        above[top(link.a)] = top(link.b)
    found: dict[str, list[str]] = {}
    for node in nodes:
        found.setdefault(top(node), []).append(node)
    return [tuple(members) for members in found.values()]


def piece_notes(nodes: Sequence[str], switches: Sequence[str], links: Sequence[Link]) -> Iterator[str]:
    """That a fabric is in pieces, and which: a job cannot span them."""
    if not links:
        return
    found = pieces(nodes, switches, links)
    if len(found) > 1:
        shown = [f"{members[0]} and {len(members) - 1:,} more" for members in found[:4]]
        rest = f" and {len(found) - 4:,} more" if len(found) > 4 else ""
        yield (
            f"in {len(found):,} pieces that no switch joins ({'; '.join(shown)}{rest}): a job cannot span them; "
            "keep one of them, or add the switch that joins them"
        )


def block_notes(blocks: Sequence[Block], base: int | None) -> Iterator[str]:
    """How large the blocks are, when they differ from each other or from what is planned with."""
    sizes = sorted({len(block.nodes) for block in blocks})
    if len(sizes) > 1:
        yield f"uneven: blocks have {sizes[0]:,} to {sizes[-1]:,} nodes"
    if base is not None and sizes and sizes != [base]:
        small = [block for block in blocks if len(block.nodes) < base]
        if small:
            shown = f"{small[0].name} has {len(small[0].nodes):,}"
            rest = f", and {len(small) - 1:,} more have fewer" if len(small) > 1 else ""
            yield f"blocks are planned with {base:,} nodes, but {shown}{rest}"
        else:
            yield f"blocks have up to {sizes[-1]:,} nodes, of which {base:,} are planned with: the others are spare"
