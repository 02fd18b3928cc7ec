"""Some of the nodes of a fabric: names checked, switches without nodes left out."""

from __future__ import annotations

import pytest

from mapsearch.errors import InputError
from mapsearch.topologies.composing.selection import selected
from mapsearch.topologies.importers import slurm_conf

FABRIC = slurm_conf.read(
    "SwitchName=a Nodes=n[1-4]\nSwitchName=b Nodes=n[5-8]\nSwitchName=e\nSwitchName=t Switches=a,b,e\n"
    "SwitchName=u Switches=a,b\nBlockName=x Nodes=n[1-4]\nBlockName=y Nodes=n[5-8]\n",
    file="f",
)


def test_all_nodes_without_empty_switches() -> None:
    fabric = selected(FABRIC, "", file="f")
    assert fabric.nodes == FABRIC.nodes and fabric.switches == ("a", "b", "t", "u")
    assert len(fabric.links) == 8 + 4


def test_some_nodes() -> None:
    fabric = selected(FABRIC, "n[3-4]", file="f")
    assert fabric.nodes == ("n3", "n4") and fabric.switches == ("a", "t", "u")
    assert {(link.a, link.b) for link in fabric.links} == {("n3", "a"), ("n4", "a"), ("a", "t"), ("a", "u")}
    assert [(block.name, block.nodes) for block in fabric.blocks] == [("x", ("n3", "n4"))]
    assert fabric.notes[-1] == "6 nodes left out: not among n[3-4]"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("n[3-9]", "--only: no node of f is called 'n9'"),
        ("n[3-", "--only: n[3- has a bracket without its partner"),
        ("n[1-999999999]", "--only: n[1-999999999] names 999,999,999 nodes"),
    ],
)
def test_refused(wanted: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        selected(FABRIC, wanted, file="f")
    assert words in str(caught.value)
