"""The fit to measured runs: what a factor does to a profile, recovery of known factors, and what left-out rows see."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mapsearch.calibration.fit import (
    Fit,
    Observation,
    evaluated,
    fit,
    folds,
    held_out,
    logs_of,
    observations,
    predicted,
)
from mapsearch.calibration.generations import epoch_of, release_of
from mapsearch.calibration.parameters import NAMES, PARAMETERS, applied, steps, with_fields
from mapsearch.calibration.rows import Case, load_cases
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.profiles import load_profile
from mapsearch.quantity import Floats

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "published"
SOURCES = ("simumax_b200", "sc21_megatron_2104.04473", "moe_modelzoo")
EACH = 9


def logs(**values: float) -> Floats:
    """A vector of logarithms, 0 where not named."""
    return np.array([values.get(name, 0.0) for name in NAMES])


# --- factors on a profile -----------------------------------------------------------------------------------------


@pytest.fixture
def h100() -> Profile:
    return load_profile("h100")


def test_a_factor_scales_its_fields_and_no_other(h100: Profile) -> None:
    found = applied(h100, logs(memory=-0.1, rows=0.3))
    assert found.memory_bandwidth == pytest.approx(h100.memory_bandwidth * np.exp(-0.1))
    assert found.gemm.half_rows == pytest.approx(h100.gemm.half_rows * np.exp(0.3))
    assert found.gemm.peak == h100.gemm.peak and found.grouped_gemm == h100.grouped_gemm
    assert found.all_reduce == h100.all_reduce and found.runtime_bytes == h100.runtime_bytes


def test_factors_on_one_field_multiply(h100: Profile) -> None:
    found = applied(h100, logs(compute=-0.1, grouped=-0.2, attention=-0.3))
    assert found.gemm.peak == pytest.approx(h100.gemm.peak * np.exp(-0.1))
    assert found.grouped_gemm.peak == pytest.approx(h100.grouped_gemm.peak * np.exp(-0.3))
    assert found.attention_forward.peak == pytest.approx(h100.attention_forward.peak * np.exp(-0.4))


def test_several_sets_are_one_profile_of_arrays(h100: Profile) -> None:
    vectors = [logs(), logs(compute=-0.12, launch=0.3, straggle=-0.5), np.full(len(NAMES), 9.0)]
    one, each = applied(h100, np.stack(vectors)), [applied(h100, vector) for vector in vectors]
    for parameter in PARAMETERS:
        for field in parameter.fields:
            head, _, rest = field.partition(".")
            values = [getattr(getattr(p, head), rest) if rest else getattr(p, head) for p in (one, *each)]
            if values[1] is not None:
                assert values[0].shape == (3, 1) and values[0][:, 0].tolist() == values[1:], field


def test_shares_stay_below_their_bound(h100: Profile) -> None:
    found = applied(h100, np.full(len(NAMES), 9.0))
    for parameter in PARAMETERS:
        for field in parameter.fields:
            head, _, rest = field.partition(".")
            value = getattr(getattr(found, head), rest) if rest else getattr(found, head)
            assert value is None or value <= parameter.most, field
    assert found.gemm.peak == found.memory_bandwidth == found.tp_overlap == 1.0
    assert found.step_overhead == 60.0 and found.kernel_launch == 1e-3


def test_nothing_fitted_leaves_all_but_empty_fields_that_have_a_start(h100: Profile) -> None:
    # Width of a head, stragglers and time between steps are 0 in the built-in profile: a factor could not move them.
    starts = {"attention_forward.half_columns": 16.0, "attention_backward.half_columns": 16.0}
    starts |= {"straggle": 0.005, "step_overhead": 0.02}
    assert h100.attention_forward.half_columns == h100.straggle == h100.step_overhead == 0.0
    assert applied(h100, logs()) == with_fields(h100, starts)
    own = with_fields(h100, {"straggle": 0.01, "step_overhead": 0.5, "attention_forward.half_columns": 4.0})
    assert applied(own, logs()) == with_fields(own, {"attention_backward.half_columns": 16.0})


def test_a_field_that_the_profile_leaves_out_stays_out(h100: Profile) -> None:
    flat = with_fields(h100, {"all_reduce.high_bandwidth_peak": None})  # type: ignore[dict-item]
    assert applied(flat, logs(inside=-0.5)).all_reduce.high_bandwidth_peak is None


def test_with_fields_replaces_dotted_fields_in_a_copy(h100: Profile) -> None:
    found = with_fields(h100, {"gemm.peak": 0.5, "gemm.half_rows": 7.0, "straggle": 0.1})
    assert (found.gemm.peak, found.gemm.half_rows, found.straggle) == (0.5, 7.0, 0.1)
    assert found.gemm.half_columns == h100.gemm.half_columns
    assert h100.gemm.peak != 0.5 and h100.straggle == 0.0


def test_steps_are_the_point_and_one_step_along_each() -> None:
    assert np.array_equal(steps(2, 0.5), [[0.0, 0.0], [0.5, 0.0], [0.0, 0.5]])


def test_parts_of_a_fit_add_up_and_unknown_names_add_nothing() -> None:
    found = Fit(logs(compute=0.1), {"device": {"a100": logs(compute=0.02)}, "epoch": {"2021": logs(launch=0.3)}})
    assert np.allclose(found.logs(device="a100", epoch="2021"), logs(compute=0.12, launch=0.3))
    assert np.allclose(found.logs(device="none", family="megatron"), logs(compute=0.1))


# --- measured runs ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Observation]:
    """Published runs of three sources: two generations of devices, dense and MoE."""
    folder = tmp_path_factory.mktemp("rows")
    for name in ("hardware", *SOURCES):
        shutil.copy(PUBLISHED / f"{name}.yaml", folder)
    cases, _ = load_cases(folder)
    chosen: list[Case] = []
    for source in SOURCES:
        own = [c for c in cases if c.groups.source == source and c.measured.step_time_s and len(c.mappings) == 1]
        chosen += own[:: max(len(own) // EACH, 1)][:EACH]
    return observations(chosen)


TRUTH = logs(compute=-0.12, grouped=0.1, memory=-0.08, inside=-0.1, exchange=0.1)


@pytest.fixture(scope="module")
def made(rows: list[Observation]) -> list[Observation]:
    """The same runs with the times that known factors predict."""
    found = []
    for row in rows:
        seconds = float(predicted(row, [TRUTH])[0])
        measured = replace(row.case.measured, step_time_s=seconds)
        found.append(replace(row, case=replace(row.case, measured=measured)))
    return found


@pytest.fixture(scope="module")
def fitted(made: list[Observation]) -> tuple[Fit, Floats]:
    return fit(made, rounds=4, processes=1)


@pytest.fixture(scope="module")
def left_out(made: list[Observation], fitted: tuple[Fit, Floats]) -> dict[str, Fit]:
    return folds(made, *fitted, source)


def source(row: Observation) -> str:
    """The group that is left out."""
    return row.case.groups.source


def test_rows_that_are_fitted(rows: list[Observation]) -> None:
    assert len(rows) >= 24 and set(map(source, rows)) == set(SOURCES)
    assert {row.device for row in rows} >= {"a100", "b200"}
    assert {row.case.groups.arch for row in rows} == {"dense", "moe"}
    assert all(1 <= len(row.points) <= 5 and row.measured_s > 0 for row in rows)


def test_known_factors_are_recovered(made: list[Observation], fitted: tuple[Fit, Floats]) -> None:
    before = evaluated(made, lambda row: logs(), slopes=False, processes=1)[:, 0]
    found, table = fitted
    assert np.median(np.abs(before)) > 0.05
    # Priors hold the factors towards 0, so a remainder stays.
    remainder = np.abs(table[:, 0])
    assert np.quantile(remainder, 0.9) <= 0.01 and remainder.max() <= 0.02
    for row in made:
        compute = logs_of(found, row)[NAMES.index("compute")]
        assert compute == pytest.approx(-0.12, abs=0.06)


def test_slopes_are_those_of_the_residuals(made: list[Observation], fitted: tuple[Fit, Floats]) -> None:
    found, table = fitted
    place = NAMES.index("memory")
    moved = evaluated(made, lambda row: logs_of(found, row) + logs(memory=0.01), slopes=False, processes=1)[:, 0]
    assert moved - table[:, 0] == pytest.approx(0.01 * table[:, 1 + place], abs=2e-4)
    # Faster memory never makes a step longer.
    assert (table[:, 1 + place] <= 1e-9).all() and table[:, 1 + place].min() < -0.01


def test_a_fold_does_not_see_the_times_of_its_group(
    made: list[Observation], fitted: tuple[Fit, Floats], left_out: dict[str, Fit]
) -> None:
    full, table = fitted
    assert set(left_out) == set(SOURCES)
    changed = table.copy()
    changed[[source(row) == "simumax_b200" for row in made], 0] += 0.3
    after = folds(made, full, changed, source)
    for row in made:
        own, other = logs_of(left_out[source(row)], row), logs_of(after[source(row)], row)
        assert np.array_equal(own, other) == (source(row) == "simumax_b200")


def test_a_device_that_only_the_left_out_source_ran_on_gets_what_all_share(
    made: list[Observation], fitted: tuple[Fit, Floats], left_out: dict[str, Fit]
) -> None:
    assert {source(row) for row in made if row.device == "b200"} == {"simumax_b200"}
    # The fold knows nothing of the device, and of nothing else that only the rows left out were of.
    assert "b200" not in left_out["simumax_b200"].own["device"]
    assert not any("simumax" in name or "real-run" in name for name in left_out["simumax_b200"].own["release"])
    assert np.abs(fitted[0].own["device"]["b200"]).max() > 1e-3


def test_left_out_errors_are_those_of_the_folds(
    made: list[Observation], fitted: tuple[Fit, Floats], left_out: dict[str, Fit]
) -> None:
    full, table = fitted
    outside = held_out(made, full, table, source, processes=1)
    for row, residual in zip(made, outside, strict=True):
        seconds = float(predicted(row, [logs_of(left_out[source(row)], row)])[0])
        assert residual == pytest.approx(np.log(seconds / row.measured_s), abs=1e-9)
    # Two other sources tell less than all three.
    assert np.median(np.abs(outside)) > np.median(np.abs(table[:, 0]))


def test_one_wild_row_does_not_pull_the_others(made: list[Observation], fitted: tuple[Fit, Floats]) -> None:
    first = made[0]
    measured = replace(first.case.measured, step_time_s=5.0 * first.measured_s)
    wild = [replace(first, case=replace(first.case, measured=measured)), *made[1:]]
    _, table = fit(wild, start=fitted[0], rounds=2, processes=1)
    assert table[0, 0] < -1.0
    assert np.median(np.abs(table[1:, 0])) < 0.02


def test_the_year_of_a_row(rows: list[Observation]) -> None:
    years = {source(row): epoch_of(row.case) for row in rows}
    assert years["sc21_megatron_2104.04473"] == "2021"
    assert years["simumax_b200"] == years["moe_modelzoo"] == "2025"
    assert Counter(row.epoch for row in rows) == Counter(years[source(row)] for row in rows)
    case = rows[0].case

    def year(name: str, framework: str) -> str:
        return epoch_of(replace(case, groups=replace(case.groups, source=name, framework=framework)))

    assert year("own", "Megatron-Core 24.05") == "2024"
    assert year("own", "Megatron-Bridge r0.2") == "2025"
    assert year("own", "anything newer") == "2026"
    # The source is of a year before its release is looked at.
    assert year("llm_foundry", "r0.2") == "2023"


def test_the_release_of_a_row(rows: list[Observation]) -> None:
    case = rows[0].case

    def release(name: str, framework: str) -> str:
        return release_of(replace(case, groups=replace(case.groups, source=name, framework=framework, family="other")))

    assert release("own", "Megatron-Bridge v0.5.0") == "megatron-bridge-v0.5.0-2026"
    assert release("llm_foundry", "Composer FSDP (torch 1.13/2.x)") == "composer-fsdp-torch-1.13-2.x-2023"
    # A row that names no framework is of its family's nameless release.
    assert release("own", "") == "other-2026"
