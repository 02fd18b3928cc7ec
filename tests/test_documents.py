"""Texts of several YAML documents are read as strictly as one."""

from __future__ import annotations

import pytest

from mapsearch import documents
from mapsearch.errors import InputError


def test_every_document_and_no_empty_ones() -> None:
    assert documents.parse_all("---\na: 1\n---\n---\n- b\n", file="f") == [{"a": 1}, ["b"]]
    assert documents.parse_all("---\n", file="f") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\n---\nb: &x [1]\nc: *x\n", "line 4, column 4: aliases"),
        ("a: 1\n---\nb: 1\nb: 2\n", "line 4, column 1: key 'b' stands twice"),
        ("a: 1\n---\nb: .inf\n", "inf is not a finite number"),
        ("a: 1\n---\nb: !!python/object:x.y {}\n", "is not valid YAML"),
        ("a: 1\n---\n" + "[" * 100, "nested more than"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        documents.parse_all(text, file="f")


def test_one_document_stays_one() -> None:
    with pytest.raises(InputError, match="is not valid YAML"):
        documents.parse("a: 1\n---\nb: 2\n", file="f")
