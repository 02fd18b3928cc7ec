"""Contracts that several tests look at."""

from __future__ import annotations

import pytest
from contracts import ASIC_MAPPING, e1_contract

from mapsearch.contracting.api import contract_of
from mapsearch.inventories.mapping import Mapping


@pytest.fixture(scope="session")
def e1():
    return e1_contract()


@pytest.fixture(scope="session")
def asic():
    return contract_of(Mapping.model_validate(ASIC_MAPPING))
