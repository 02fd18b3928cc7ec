"""Whether a fabric hangs together: the parts that no link joins; and how even its blocks are.

Contents: parts, part_notes, block_notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mapsearch.topologies.importers.base import Block, Link


def parts(names: Sequence[str], links: Iterable[Link]) -> list[list[str]]:
    """Names of nodes and switches that links join, part by part, in the order of their first names."""
    near: dict[str, list[str]] = {name: [] for name in names}
    for link in links:
        near[link.a].append(link.b)
        near[link.b].append(link.a)
    seen: set[str] = set()
    result = []
    for name in names:
        if name in seen:
            continue
        seen.add(name)
        part = [name]
        for here in part:
            fresh = [there for there in near[here] if there not in seen]
            seen.update(fresh)
            part.extend(dict.fromkeys(fresh))
        result.append(part)
    return result


def part_notes(nodes: Sequence[str], switches: Sequence[str], links: Sequence[Link]) -> Iterator[str]:
    """That a fabric is in parts, and which: a job cannot span them."""
    if not links:
        return
    known = set(nodes)
    found = [[name for name in part if name in known] for part in parts([*nodes, *switches], links)]
    found = [members for members in found if members]
    if len(found) > 1:
        shown = [f"{members[0]} and {len(members) - 1:,} more" for members in found[:4]]
        rest = f" and {len(found) - 4:,} more" if len(found) > 4 else ""
        yield f"in {len(found):,} parts that no switch joins ({'; '.join(shown)}{rest}): a job cannot span them"


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
