"""Tests of the search share small instances; see tiny_cases.py."""

import pytest
from tiny_cases import tiny_facts


@pytest.fixture
def tiny():
    """The factory of small facts."""
    return tiny_facts
