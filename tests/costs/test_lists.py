"""The visible lists hold every quantity and relation that exists."""

import importlib
import pkgutil

import mapsearch.constraints
import mapsearch.costs
from mapsearch.constraints import ALL, divisibility, framework
from mapsearch.quantity import Quantity
from mapsearch.relation import Relation


def modules(package):
    for info in pkgutil.iter_modules(package.__path__):
        yield importlib.import_module(f"{package.__name__}.{info.name}")


def test_every_quantity_is_listed_once():
    listed = [quantity.name for quantity in mapsearch.costs.ALL]
    defined = {
        name
        for module in modules(mapsearch.costs)
        for name, value in vars(module).items()
        if isinstance(value, Quantity) and value.function.__module__ == module.__name__
    }

    assert len(listed) > 60
    assert sorted(listed) == sorted(defined)


def test_every_quantity_says_unit_and_source():
    assert all(quantity.unit and quantity.source for quantity in mapsearch.costs.ALL)


def test_every_relation_is_listed_once():
    frameworks = [relation for rules in framework.BY_NAME.values() for relation in rules]
    listed = [relation.name for relation in (*ALL, *frameworks)]
    defined = {
        value.name
        for module in modules(mapsearch.constraints)
        for value in vars(module).values()
        if isinstance(value, Relation)
    }

    assert len(listed) == len(set(listed))
    assert defined <= set(listed)
    assert {relation.name for relation in divisibility.RELATIONS} <= set(listed)
