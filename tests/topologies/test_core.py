"""The regular core against a brute force over every choice of fan-outs."""

from __future__ import annotations

import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from mapsearch.topologies.core import Tree, regular_core


def most_devices(shape, whole, tiers):
    """Brute force: try every tuple of fan-outs. `shape`: nested lists, a device is True when it works."""

    def good(node, fan_outs):
        if not fan_outs:
            return node is True
        if node is None:
            return False
        count = sum(good(child, fan_outs[:-1]) for child in node)
        return count == fan_outs[-1] if whole[len(fan_outs) - 1] else count >= fan_outs[-1]

    return max(
        (math.prod(fan_outs) for fan_outs in itertools.product(range(1, 6), repeat=tiers) if good(shape, fan_outs)),
        default=0,
    )


@st.composite
def trees(draw):
    tiers = draw(st.integers(1, 3))
    whole = tuple(draw(st.booleans()) for _ in range(tiers))
    listed, broken = {}, set()

    def build(path):
        if len(path) == tiers:
            if draw(st.integers(0, 4)) == 0:
                broken.add(path)
                return False
            return True
        listed[path] = draw(st.integers(1, 4))
        children = [build((*path, index)) for index in range(listed[path])]
        if path and draw(st.integers(0, 9)) == 0:
            broken.add(path)
            return None
        return children

    shape = build(())
    return Tree((0,) * tiers, listed, frozenset(broken), whole), shape


@settings(max_examples=200, deadline=None)
@given(trees())
def test_no_choice_of_fan_outs_keeps_more(drawn):
    tree, shape = drawn
    core = regular_core(tree)
    assert core.devices == most_devices(shape, tree.whole, tree.depth)
    assert all(not any(a == b[: len(a)] for b in core.lost if b != a) for a in core.lost)


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    dead=st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=6),
    kinds=st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_listing_only_what_is_broken_is_the_same(sizes, dead, kinds):
    """Sizes for all units, or every unit listed: one core."""
    depth = len(sizes)
    outer_first = sizes[::-1]
    broken = frozenset(path[:depth] for path in dead if all(i < n for i, n in zip(path, outer_first, strict=False)))
    listed = {
        path: outer_first[length]
        for length in range(depth)
        for path in itertools.product(*(range(n) for n in outer_first[:length]))
    }
    whole = tuple(kinds[:depth])
    # listed units of part rings count as rings of what is left, so only compare trees without rings
    if not any(whole):
        sparse = regular_core(Tree(tuple(sizes), {}, broken, whole))
        full = regular_core(Tree((0,) * depth, listed, broken, whole))
        assert sparse == full
    else:
        sparse = regular_core(Tree(tuple(sizes), {}, broken, whole))
        assert all(fan_out == size for fan_out, size, ring in zip(sparse.fan_outs, sizes, whole, strict=False) if ring)


def test_huge_trees_cost_what_is_broken():
    core = regular_core(Tree((64, 64, 64, 1024), broken=frozenset({(3,), (5, 1), (7, 2, 3), (9, 0, 0, 1)})))
    assert core.fan_outs == (64, 64, 64, 1020)
    assert core.lost == ((3,), (5,), (7,), (9,))
