"""Results on disk: half lines, lines that stand twice, two sweeps in one folder."""

from __future__ import annotations

import os

import pytest

from mapsearch.errors import InputError, UsageError
from mapsearch.sweeps.record import SweepItem, failed
from mapsearch.sweeps.store import RESULTS, Store


def record(key: str, **more) -> SweepItem:
    return SweepItem(key=key, settings={"model": "é", "devices": 8}, status="infeasible", **more)


@pytest.fixture
def written(tmp_path):
    with Store(tmp_path) as store:
        for key in "abc":
            store.append(record(key))
    return tmp_path / RESULTS


def test_what_was_appended_is_there_again(written):
    with Store(written.parent) as store:
        assert list(store.records) == ["a", "b", "c"]
        assert store.records["b"] == record("b")
        assert not store.remarks


def test_cut_anywhere_in_the_last_line_the_others_are_kept(written):
    data = written.read_bytes()
    last = data.rstrip(b"\n").rfind(b"\n") + 1
    for end in (last, last + 1, *range(last + 2, len(data) - 1, 97), len(data) - 2, len(data) - 1):
        written.write_bytes(data[:end])
        with Store(written.parent) as store:
            assert list(store.records) == ["a", "b"]
            assert bool(store.remarks) == (end > last)
            store.append(record("c"))
        assert written.read_bytes() == data


def test_a_last_line_of_zeros_is_dropped(written):
    data = written.read_bytes()
    written.write_bytes(data + b"\0" * 40 + b"\n")
    with Store(written.parent) as store:
        assert list(store.records) == ["a", "b", "c"]
    assert written.read_bytes() == data


def test_rubbish_in_the_middle_is_refused_with_its_line(written):
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(lines[0] + b"{}\n" + lines[2])
    with pytest.raises(InputError, match="line 2 is no result of a sweep"), Store(written.parent):
        pass


def test_the_same_item_twice_is_refused(written):
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join([*lines, lines[0]]))
    with pytest.raises(InputError, match=r"line 4 has the item a\.\.\. again"), Store(written.parent):
        pass
    written.write_bytes(b"".join(lines))
    with Store(written.parent) as store, pytest.raises(ValueError, match="has a result already"):
        store.append(record("a"))


def test_one_sweep_per_folder(written):
    again = Store(written.parent)
    with Store(written.parent), pytest.raises(UsageError, match="another sweep is writing here"):
        again.__enter__()
    with Store(written.parent) as again:
        assert len(again.records) == 3


def test_forgetting_leaves_the_others_and_goes_on(written):
    with Store(written.parent) as store:
        store.append(failed("d", {}, "InputError", "no"))
        store.forget({"b", "d", "x"})
        store.append(record("e"))
    with Store(written.parent) as store:
        assert list(store.records) == ["a", "c", "e"]
    assert sorted(os.listdir(written.parent)) == ["lock", RESULTS]


def test_a_folder_that_cannot_be_one(tmp_path):
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(UsageError, match="--output: cannot be used"), Store(file):
        pass


def test_a_full_disk_leaves_whole_lines(written, monkeypatch):
    from mapsearch.sweeps import store as module

    data = written.read_bytes()

    def half(file, line):
        os.write(file, line[: len(line) // 2])
        raise OSError(28, "No space left on device")

    with Store(written.parent) as store:
        monkeypatch.setattr(module, "_write_all", half)
        with pytest.raises(UsageError, match="cannot be written: No space left"):
            store.append(record("d"))
    assert written.read_bytes() == data
