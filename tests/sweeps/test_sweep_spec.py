"""From a sweep file to settings: order, lists that vary together, exclusions, and what is refused."""

from __future__ import annotations

import pytest

from mapsearch.errors import InputError
from mapsearch.records import validate
from mapsearch.sweeps.settings import check_setting, shown
from mapsearch.sweeps.spec import MOST, Sweep, checked, combinations


def settings_of(**parts):
    return combinations(checked(validate(Sweep, parts, file="s.yaml"), file="s.yaml"))


def test_grid_zip_and_items_in_order():
    found, remarks = settings_of(
        base={"model": "a", "top": 2},
        grid={"topology": ["x", "y"], "devices": [8, 16]},
        zip=[{"run.sequence_length": [512, 1024], "run.global_batch": [64, 32]}],
        items=[{"model": "b", "fix.tp": 4}],
        exclude=[{"topology": "y", "devices": [16, 32]}],
    )
    told = [" ".join(shown(value) for value in each.values()) for each in found]
    assert told == [
        "a 2 x 8 512 64",
        "a 2 x 8 1024 32",
        "a 2 x 16 512 64",
        "a 2 x 16 1024 32",
        "a 2 y 8 512 64",
        "a 2 y 8 1024 32",
        "b 2 4",
    ]
    assert list(found[0]) == ["model", "top", "topology", "devices", "run.sequence_length", "run.global_batch"]
    assert remarks == ["excluded: 2 combinations"]


def test_groups_of_lists_combine_with_each_other():
    found, _ = settings_of(zip=[{"devices": [1, 2], "top": [1, 2]}, {"model": ["a", "b"]}])
    assert [tuple(each.values()) for each in found] == [(1, 1, "a"), (1, 1, "b"), (2, 2, "a"), (2, 2, "b")]


def test_a_list_can_be_a_value_and_be_excluded():
    found, _ = settings_of(
        grid={"allow.ep": [[8], [8, 16]], "run.zero": [[1], [3]]}, exclude=[{"allow.ep": [8], "run.zero": [1]}]
    )
    assert found == [
        {"allow.ep": [8], "run.zero": [3]},
        {"allow.ep": [8, 16], "run.zero": [1]},
        {"allow.ep": [8, 16], "run.zero": [3]},
    ]


def test_a_rule_that_excludes_nothing_is_told():
    _, remarks = settings_of(grid={"devices": [1, 2]}, exclude=[{"devices": 3}, {"devices": 2}])
    assert remarks == ["excluded: 1 combination", "exclude[0] matches no combination"]


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"grd": {"devices": [1]}}, "s.yaml: grd: unknown key (did you mean 'grid'?)"),
        ({"grid": {"devices": []}}, "s.yaml: grid.devices: list should have at least 1 item"),
        ({"name": "x"}, "has no items; give a grid"),
        ({"grid": {"devices": [0]}}, "s.yaml: grid.devices: takes a whole number from 1 to 2,147,483,648, not 0"),
        ({"grid": {"devices": [True]}}, "not True"),
        ({"grid": {"devices": ["8"]}}, "not '8'"),
        ({"base": {"modle": "a"}, "grid": {"devices": [1]}}, "'modle' is not a setting (did you mean 'model'?)"),
        ({"grid": {"sequence_length": [1]}}, "did you mean 'run.sequence_length'?"),
        ({"grid": {"run.sequence_lenght": [1]}}, "is no field of a run (did you mean 'sequence_length'?)"),
        ({"grid": {"fix.tpp": [1]}}, "'tpp' is not an axis (did you mean 'tp'?)"),
        ({"grid": {"fix.schedule": ["1f2b"]}}, "1f2b"),
        ({"grid": {"at_most.schedule": [1]}}, "has no order to limit"),
        ({"grid": {"inside.rack": ["ep"]}}, "takes a list, such as [ep]"),
        ({"grid": {"proof": ["maybe"]}}, "accepted: auto or none"),
        ({"grid": {"time_limit": [-1]}}, "takes a positive number of seconds"),
        ({"grid": {"model": [" "]}}, "takes the name of a model or a file"),
        ({"zip": [{"devices": [1, 2], "top": [1]}]}, "zip[0]: lists that vary together need one length"),
        ({"zip": [{"devices": [1, 2]}], "grid": {"devices": [1]}}, "devices varies in grid as well"),
        ({"grid": {"devices": [1]}, "exclude": [{"devices": 1}]}, "exclude: leaves out every combination"),
        ({"grid": {"devices": [1]}, "exclude": [{}]}, "exclude[0]: is empty"),
    ],
)  # fmt: skip
def test_what_is_refused_says_where(parts, told):
    with pytest.raises(InputError) as refused:
        settings_of(**parts)
    assert told in str(refused.value)


def test_a_billion_combinations_are_counted_and_not_made():
    axes = {name: list(range(1, 1001)) for name in ("devices", "top", "run.sequence_length")}
    with pytest.raises(InputError, match=r"1,000 devices x 1,000 top x .* are 1,000,000,000 combinations; .* 100,000"):
        settings_of(grid=axes)
    assert MOST == 100_000


def test_optional_settings_may_be_left_out_by_name():
    for name in ("devices", "profile", "time_limit"):
        check_setting(name, None, file="s", field=name)
    with pytest.raises(InputError):
        check_setting("model", None, file="s", field="model")
