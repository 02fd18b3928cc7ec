"""Broken files of every format: an answer or one sentence, never a traceback, and never more than two seconds."""

from __future__ import annotations

import json
import time

import mutations
import node_texts
import pytest
import test_import_graphs as graphs
import test_import_ibnetdiscover as ibnet
import test_import_kueue as kueue
import test_import_slurm as slurm
from hypothesis import given, settings
from hypothesis import strategies as st

from mapsearch.errors import InputError
from mapsearch.topologies.composing import Wishes, composed, imported
from mapsearch.topologies.importers import IMPORTERS, importer_of, read_text
from mapsearch.topologies.importers.base import Between, Imported, Inside

MOST_S = 2.0
SMALL = 64
"""Nodes up to which a fabric that was read is composed with a node as well."""
TEXTS = [
    ibnet.fabric_text(),
    kueue.TOPOLOGY + "---\n" + kueue.listed(kueue.NODES),
    json.dumps(graphs.OLDER, indent=1),
    json.dumps(graphs.SMALL, indent=1),
    json.dumps({**graphs.SMALL, "device": graphs.DEVICE}),
    *node_texts.TEXTS.values(),
    *(
        value
        for module in (graphs, ibnet, kueue, slurm)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str) and "\n" in value
    ),
]
NODE = read_text(node_texts.nvswitch(2), file="node.txt")


def test_every_format_has_a_text_here():
    known = set()
    for text in TEXTS:
        try:
            known.add(importer_of(text, "file").FORMAT)
        except InputError:
            continue
    assert known == {one.FORMAT for one in IMPORTERS}


def outcome(text: str, *, repair: bool) -> str:
    """What becomes of a text: read, composed, or refused with a sentence that has one line."""
    try:
        found = read_text(text, file="file", repair=repair)
        return used(found, repair=repair)
    except InputError as problem:
        assert str(problem).strip() and len(str(problem)) < 2_000
        return "refused"


def used(found: Imported, *, repair: bool) -> str:
    wishes = Wishes(device=_device(found), repair=repair)
    if isinstance(found, Between):
        if len(found.nodes) > SMALL:
            return "read"
        assert isinstance(NODE, Inside)
        composed(("node.txt", NODE), ("file", found), wishes)
    else:
        imported([("file", found)], wishes)
    return "composed"


def _device(found: Imported) -> str:
    """A part that goes with what the text says."""
    hint = found.vertices[0].hint if isinstance(found, Inside) and found.vertices else ""
    return {"amd": "mi300x", "gfx942": "mi300x", "ascend": "910c", "sm_80": "a100"}.get(hint.split(" ")[0], "h100")


def hold(seed: int) -> set[str]:
    text = mutations.mutated(TEXTS, seed)
    results = set()
    for repair in (False, True):
        begin = time.process_time()
        results.add(outcome(text, repair=repair))
        took = time.process_time() - begin
        assert took < MOST_S, f"seed {seed}, repair {repair}: {took:.1f} s"
    return results


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_broken_files_give_an_answer_or_a_sentence(seed):
    hold(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_a_hundred_thousand_broken_files(part):
    found: set[str] = set()
    for seed in range(part * 5_000, (part + 1) * 5_000):
        found |= hold(seed)
    assert {"refused", "composed"} <= found


SCRAPS = ("", " ", "\n", "<", "{", "[", "-", "GPU0", "\tGPU0", "SwitchName", "\x00", "<system", "=\n" * 1000)


@pytest.mark.parametrize("text", SCRAPS)
@pytest.mark.parametrize("repair", [False, True])
def test_scraps_are_refused(text, repair):
    assert outcome(text, repair=repair) == "refused"
