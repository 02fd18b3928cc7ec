"""The quantiser: its error bound holds, and expressions mean what arrays of pairs mean."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from instances import problems

from mapsearch.quantity import maximum
from mapsearch.solver import expression
from mapsearch.solver.backends.base import every_cell
from mapsearch.solver.backends.encoding import encode, restricted
from mapsearch.solver.cells import evaluate, expressions, pair_view
from mapsearch.solver.quantise import option_floors, rounded, safe_scale, span

QUICK = settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
VALUES = st.lists(st.floats(-50, 50), min_size=3, max_size=3).map(np.array)


def nested(a, b, c):
    """A sum, a maximum inside a maximum, and a subtracted one."""
    left, right, other = expression.attention(a, 3), expression.expert(b, 3), expression.attention(c, 3)
    inner = maximum(left - right, 1.5)
    return left + 2.5 * right + 7.0 * maximum(0.3 * inner + other, right) - 3.0 * maximum(other, 0.0) + 11.0


def nested_at(a, b, c):
    inner = max(a - b, 1.5)
    return a + 2.5 * b + 7.0 * max(0.3 * inner + c, b) - 3.0 * max(c, 0.0) + 11.0


@settings(deadline=None, database=None)
@given(VALUES, VALUES, VALUES, st.sampled_from([0.7, 10.0, 12345.0]))
def test_rounding_stays_within_its_stated_error(a, b, c, scale):
    value = nested(a, b, c)
    integer = rounded(value, scale)
    low, high = span(integer)
    floors = option_floors(value)
    assert integer.error == 1 + (1 + 1) + 1  # the sum; the outer maximum with the inner one; the subtracted one
    for i in range(3):
        for j in range(3):
            exact = nested_at(a[i], b[j], c[i])
            assert abs(value.at(i, j) - exact) < 1e-9
            assert abs(integer.at(i, j) - scale * exact) <= integer.error + 1e-6
            assert low <= integer.at(i, j) <= high
            assert floors[0][i] <= exact + 1e-9 and floors[1][j] <= exact + 1e-9


def test_a_factor_does_not_grow_the_error():
    values = np.array([0.3, 0.4])
    value = 1000.0 * maximum(expression.attention(values, 1), 0.1)
    assert abs(rounded(value, 1.0).at(0, 0) - 300) <= 1


def test_scale_leaves_room_for_the_sum_of_all_terms():
    scale = safe_scale(1e9, largest=1e6, terms=10_000)
    assert scale < 1e9 and scale * 1e6 * 10_000 <= 2.0**60
    assert safe_scale(1e9, largest=1.0, terms=10) == 1e9


@QUICK
@given(problems())
def test_expressions_equal_arrays_and_dropped_options_are_infeasible(problem):
    for cell in list(every_cell(problem))[:4]:
        result = evaluate(problem, cell)
        symbols, arrays = expressions(cell), pair_view(cell)
        for i, j in ((0, 0), (len(cell.attention) - 1, len(cell.expert) - 1)):
            assert np.isclose(symbols.step_time_s.at(i, j), result.step_time_s[i, j], rtol=1e-12)
            for symbol, array in zip(symbols.memory, arrays.memory, strict=True):
                assert np.isclose(symbol.at(i, j), np.broadcast_to(array, result.feasible.shape)[i, j], rtol=1e-12)
        small, dropped = restricted(problem, cell)
        assert (len(cell.attention) + len(cell.expert)) - (len(small.attention) + len(small.expert)) == dropped
        if len(small.attention) and len(small.expert):
            assert evaluate(problem, small).feasible.sum() == result.feasible.sum()
            encoding = encode(problem, [small], np.inf, 0)
            ulps = encoding.cells[0].time.at(0, 0)
            exact = evaluate(problem, small).step_time_s[0, 0] * encoding.scale
            assert abs(ulps - exact) <= encoding.error + 1e-9 * exact
        else:
            assert not result.feasible.any()
