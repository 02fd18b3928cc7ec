"""Loading inventories by path or catalogue name; the records themselves live in `mapsearch.records`.

Contents: Inventory, validate, load_inventory, resolve, catalogue_names.
"""

from __future__ import annotations

from typing import TypeVar

from mapsearch.records import Inventory, catalogue_names, resolve, validate

__all__ = ["Inventory", "catalogue_names", "load_inventory", "resolve", "validate"]

T = TypeVar("T", bound=Inventory)


def load_inventory(cls: type[T], name: str) -> T:
    """An inventory by path or catalogue name. Raises InputError."""
    data, shown = resolve(name, "mapsearch.inventories", cls.kind, f"{cls.kind}s")
    return validate(cls, data, file=shown)
