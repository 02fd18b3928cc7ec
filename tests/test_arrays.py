"""The short way of plain numbers gives numpy's values, and one mapping as numbers gives what arrays of one entry do."""

from dataclasses import replace

import numpy
import pytest

from benchmarks.cases import CASES, facts_of
from mapsearch import arrays
from mapsearch.arrays import remembered
from mapsearch.costs.estimate import Point, point_of
from mapsearch.costs.views import AttentionView, CellView, ExpertView
from mapsearch.solver.problem import problem_of
from mapsearch.solver.ranking import mapping_of
from mapsearch.solver.search import search

NUMBERS = (0, 1, 3, 8, -2, 0.0, 0.5, 2.5, 3.5, -1.5, 1e300, True, numpy.float64(2.5), numpy.int64(7))


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_pairs_as_in_numpy(name: str) -> None:
    for first in NUMBERS:
        for second in NUMBERS:
            assert getattr(arrays, name)(first, second) == getattr(numpy, name)(first, second)
    assert numpy.isnan(getattr(arrays, name)(float("nan"), 1.0))
    assert numpy.isnan(getattr(arrays, name)(1.0, float("nan")))


@pytest.mark.parametrize("name", ["ceil", "floor", "round", "any", "all", "zeros_like", "ones_like", "shape", "ndim"])
def test_single_values_as_in_numpy(name: str) -> None:
    for value in NUMBERS:
        if name != "shape":
            assert getattr(arrays, name)(value) == getattr(numpy, name)(value)
        several = numpy.array([value, value])
        assert numpy.array_equal(getattr(arrays, name)(several), getattr(numpy, name)(several))


def test_choices_as_in_numpy() -> None:
    assert arrays.where(True, 1.0, 2.0) == 1.0
    assert arrays.where(numpy.array([True, False]), 1.0, 2.0).tolist() == [1.0, 2.0]
    assert arrays.select([False, True, True], [1.0, 2.0, 3.0]) == 2.0
    assert arrays.select([False], [1.0]) == 0.0
    assert arrays.clip(3.0, 0.0, 1.0) == 1.0
    assert arrays.lcm(4, 6) == 12
    assert arrays.mod(7, 4) == 3
    assert arrays.mod(7.5, 2) == 1.5
    assert not ~arrays.isin(1, (1, 2))
    assert ~arrays.isin(3, (1, 2))
    assert arrays.prod(numpy.array([2, 3, 4]), axis=-1) == 24
    assert arrays.asarray(3, dtype=float) == 3.0 and type(arrays.asarray(numpy.array(3))) is int


def test_remembered_results_are_told_by_record_and_value() -> None:
    asked = []

    @remembered(most=2)
    def doubled(record: list[int], factor: int) -> list[int]:
        asked.append(factor)
        return [factor * value for value in record]

    first, second = [1], [1]
    assert doubled(first, 2) is doubled(first, 2)
    assert doubled(first, 2) is not doubled(second, 2)
    assert asked == [2, 2]
    doubled(first, 3)
    doubled(first, 2)
    assert asked == [2, 2, 3, 2]


def _as_arrays(point: Point) -> Point:
    """The same mapping as arrays with one entry, as the search lays mappings out."""

    def wrapped(view: AttentionView | ExpertView, cell: CellView) -> dict[str, object]:
        values = {name: getattr(view, name) for name in type(view).__dataclass_fields__ if name != "cell"}
        return {"cell": cell, **{name: numpy.array([value]) for name, value in values.items()}}

    axes = ("dp", "micro_batch", "schedule", "vpp", "recompute", "zero", "offload", "overlap")
    cell = replace(point.cell, **{name: numpy.array([getattr(point.cell, name)]) for name in axes})
    attention = AttentionView(**wrapped(point.attention, cell))
    expert = ExpertView(**wrapped(point.expert, cell))
    return replace(point, attention=attention, expert=expert)


@pytest.mark.parametrize("case", ["dsv3-1024", "gpt3-4096"])
def test_numbers_and_arrays_of_one_entry_agree_exactly(case: str) -> None:
    problem = problem_of(facts_of(CASES[case]))
    for candidate in search(problem, 5).top:
        numbers = point_of(mapping_of(candidate), problem.facts)
        one_entry = _as_arrays(numbers)
        assert numbers.step_time_s() == one_entry.step_time_s()
        assert numbers.step_time_s(frozenset()) == one_entry.step_time_s(frozenset())
        assert numbers.kind_memory_bytes == one_entry.kind_memory_bytes
        assert numbers.memory_by_stage_bytes == one_entry.memory_by_stage_bytes
