"""Every field of all five documents, changed once: `reproduce` names file, field, before and after."""

from __future__ import annotations

import pytest
from tiny_folders import all_leaves, changed_text, leaves, put, tiny_folder

from mapsearch import documents
from mapsearch.errors import MapsearchError
from mapsearch.reproducing.bundle import FILES, read_bundle
from mapsearch.reproducing.repeat import reproduce

LEAVES = all_leaves()


def label(leaf):
    return f"{leaf[0]}:{'.'.join(map(str, leaf[1]))}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("folder") / "out")


def field_of(data, path):
    """The field as it is told: parts of lists by name where they have one."""
    words, here = [], data
    for key in path:
        part = here[key]
        named = isinstance(here, list) and isinstance(part, dict)
        words.append(str(part["name"]) if named and "name" in part else str(key))
        here = part
    return ".".join(words)


def changed_folder(folder, kind, path):
    """Change one field in place: its name, whether the document is still valid, and the text before."""
    file = folder / FILES[kind]
    before = file.read_text()
    data = documents.parse(before, file=kind)
    text, valid = changed_text(kind, before, path)
    file.write_text(text)
    return field_of(data, path), valid, before


def exists(folder, kind, path):
    here = documents.load(folder / FILES[kind])
    for key in path:
        if not (isinstance(here, dict) and key in here) and not (isinstance(here, list) and key < len(here)):
            return False
        here = here[key]
    return True


def told_of(change, field):
    """A change names the field, or the list or record around it whose length it changes."""
    return field == change.field or field.startswith(f"{change.field}.") or change.field.startswith(f"{field}.")


def test_the_walk_is_no_short_one():
    kinds = [kind for kind, _ in LEAVES]
    assert {kind: kinds.count(kind) for kind in set(kinds)}.keys() == {"model", "run", "topology", "profile", "mapping"}
    assert len(LEAVES) > 200


@pytest.mark.parametrize("leaf", LEAVES, ids=label)
def test_every_changed_field_is_named(folder, leaf):
    kind, path = leaf
    if not exists(folder, kind, path):
        path = next(iter(_own_leaves(folder, kind, path)))
    field, valid, before = changed_folder(folder, kind, path)
    try:
        if valid:
            changes = read_bundle(str(folder)).changes
            assert {change.file for change in changes} == {FILES[kind]}
            mine = [change for change in changes if told_of(change, field)]
            assert mine and all(change.before != change.after for change in changes)
        else:
            with pytest.raises(MapsearchError, match="changed since it was locked") as refused:
                read_bundle(str(folder))
            assert FILES[kind] in str(refused.value) and field.split(".")[0] in str(refused.value)
    finally:
        (folder / FILES[kind]).write_text(before)


def _own_leaves(folder, kind, path):
    """The mapping of the folder is cut elsewhere than the one that the walk is made of: any of its own cuts."""
    data = documents.load(folder / FILES[kind])
    return [own for own in leaves(data) if own[0] == path[0]]


@pytest.mark.slow
@pytest.mark.parametrize("leaf", LEAVES, ids=label)
def test_every_changed_field_is_named_by_a_whole_repetition(folder, leaf):
    kind, path = leaf
    if not exists(folder, kind, path):
        path = next(iter(_own_leaves(folder, kind, path)))
    field, valid, before = changed_folder(folder, kind, path)
    try:
        found = reproduce(str(folder))
        assert valid  # what is no document any more was refused
        assert {change.file for change in found.inputs} == {FILES[kind]}
        assert any(told_of(change, field) for change in found.inputs)
        assert not found.versions
        if not found.same:
            assert found.cause == "inputs" and kind != "mapping"
    except MapsearchError as refused:
        # No document any more, or one that cannot be solved: one sentence that names what was changed.
        assert "changed since it was locked" in str(refused) and FILES[kind] in str(refused)
    finally:
        (folder / FILES[kind]).write_text(before)


def test_a_field_inside_a_list_is_named_by_the_part(folder):
    file = folder / FILES["topology"]
    before = file.read_text()
    data = documents.parse(before, file="topology")
    put(data, ("levels", 1, "bandwidth"), "20 GB/s")
    file.write_text(documents.dump(data))
    try:
        change = read_bundle(str(folder)).changes
    finally:
        file.write_text(before)
    assert [(one.file, one.field, one.before, one.after) for one in change] == [
        ("topology.yaml", "levels.rack.bandwidth", "25 GB/s", "20 GB/s")
    ]
