"""The visible lists hold every quantity of their module, once, and every one states its unit and axes."""

import pytest

from mapsearch.costs import collectives, communication, compute, data_parallel, routing
from mapsearch.quantity import Quantity


@pytest.mark.parametrize("module", [routing, collectives, communication, compute, data_parallel])
def test_lists_are_complete(module):
    declared = {value for value in vars(module).values() if isinstance(value, Quantity)}
    assert declared == set(module.QUANTITIES)
    assert len(module.QUANTITIES) == len(set(module.QUANTITIES))


@pytest.mark.parametrize("quantity", [*communication.QUANTITIES, *compute.QUANTITIES], ids=lambda q: q.name)
def test_seconds_take_the_same_facts(quantity):
    assert quantity.unit == "s"
    assert quantity.name.endswith("_s")
    assert quantity.facts == ("model", "run", "fabric", "profile")
