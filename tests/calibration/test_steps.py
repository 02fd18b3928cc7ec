"""Measured steps of one's own: what a file says, what the fit recovers, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from mapsearch.calibration.fit import predicted
from mapsearch.calibration.parameters import NAMES
from mapsearch.calibration.steps import fit_steps, read_steps
from mapsearch.errors import InputError
from mapsearch.inventories.profiles import load_profile

HEAD = {
    "model": "mixtral-8x7b",
    "run": "long-context-128k",
    "topology": "hgx-h100",
    "devices": 64,
    "sequence_length": 4096,
    "global_batch": 256,
}
MAPPINGS = (
    {"tp": 2, "dp": 8, "pp": 4, "ep": 8, "edp": 2},
    {"tp": 4, "dp": 4, "pp": 4, "ep": 8, "edp": 2},
    {"tp": 8, "dp": 8, "ep": 8, "edp": 8, "micro_batch": 2},
    {"tp": 1, "dp": 8, "pp": 8, "ep": 8, "edp": 1},
)


def file_of(folder: Path, **changes: object) -> str:
    """A list of steps that took 3 s each, with some keys changed."""
    steps = [{"step_time": "3 s", "mapping": dict(mapping)} for mapping in MAPPINGS]
    path = folder / "steps.yaml"
    path.write_text(yaml.safe_dump({**HEAD, "steps": steps, **changes}))
    return str(path)


def made(folder: Path, **factors: float) -> str:
    """Steps as a machine would measure them on which the factors hold."""
    logs = np.array([np.log(factors.get(name, 1.0)) for name in NAMES])
    times = [float(predicted(step, [logs])[0]) for step in read_steps(file_of(folder))]
    steps = [{"step_time": f"{time!r} s", "mapping": m} for time, m in zip(times, MAPPINGS, strict=True)]
    return file_of(folder, steps=steps)


def test_a_slower_machine_is_recovered(tmp_path: Path) -> None:
    file = made(tmp_path, compute=0.75)
    found = fit_steps(read_steps(file), file=file)
    assert np.abs(np.expm1(found.before)).max() > 0.15
    assert np.abs(np.expm1(found.inside)).max() < 0.03
    assert found.left_out is not None and np.abs(np.expm1(found.left_out)).max() < 0.1
    assert found.factors["compute"] == min(found.factors.values()) < 0.95


def test_steps_that_the_profile_predicts_leave_it_as_it_is(tmp_path: Path) -> None:
    file = made(tmp_path)
    found = fit_steps(read_steps(file), file=file)
    assert found.factors == pytest.approx(dict.fromkeys(NAMES, 1.0), abs=1e-9)
    assert found.profile.gemm.peak == pytest.approx(read_steps(file)[0].profile.gemm.peak)


def test_the_profile_predicts_what_the_fit_says_and_says_what_it_rests_on(tmp_path: Path) -> None:
    file = made(tmp_path, compute=0.8, memory=0.9)
    found = fit_steps(read_steps(file), file=file)
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(found.profile.model_dump(mode="json", exclude_defaults=True)))
    assert load_profile(str(path)) == found.profile
    again = read_steps(file_of(tmp_path, **{**yaml.safe_load(Path(file).read_text()), "profile": "mine.yaml"}))
    for step, residual in zip(again, found.inside, strict=True):
        # Factors are written to four digits.
        assert float(predicted(step, [np.zeros(len(NAMES))])[0]) == pytest.approx(
            step.measured_s * np.exp(residual), rel=2e-3
        )
    assert found.profile.gemm.sources["peak"] == "fitted: 4 measured steps of steps.yaml, from h100"
    assert found.profile.evidence == "fitted" and found.profile.name == "h100-steps"


def test_one_step_is_fitted_but_cannot_be_left_out(tmp_path: Path) -> None:
    file = file_of(tmp_path, steps=[{"step_time": "3 s", "mapping": MAPPINGS[0]}])
    found = fit_steps(read_steps(file), file=file)
    assert found.left_out is None and abs(found.inside[0]) < abs(found.before[0])


def test_a_step_says_what_differs_and_names_a_mapping_beside_it(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(yaml.safe_dump(MAPPINGS[0]))
    steps = [{"step_time": "3 s", "mapping": "m.yaml", "sequence_length": 8192, "name": "long"}]
    (step,) = read_steps(file_of(tmp_path, steps=steps))
    assert step.name == "long" and step.points[0].facts.run.sequence_length == 8192
    assert step.points[0].mapping.tp == 2 and step.points[0].facts.fabric.devices == 64


BAD = {
    "steps": ({"steps": []}, "steps"),
    "unit": ({"steps": [{"step_time": 3, "mapping": {}}]}, "steps.0.step_time"),
    "zero": ({"steps": [{"step_time": "0 s", "mapping": {}}]}, "steps.0.step_time"),
    "model": ({"model": None}, "steps.0"),
    "grids": ({"steps": [{"step_time": "3 s", "mapping": {"tp": 2}}]}, "steps.0.mapping"),
    "layers": ({"steps": [{"step_time": "3 s", "mapping": {"pp": 64}}]}, "steps.0.mapping"),
    "devices": (
        {
            "steps": [
                {"step_time": "3 s", "mapping": dict(MAPPINGS[0]), "topology": name}
                for name in ("hgx-h100", "hgx-a100")
            ]
        },
        "steps.1.topology",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_refusals_name_file_and_field(tmp_path: Path, name: str) -> None:
    changes, field = BAD[name]
    with pytest.raises(InputError) as caught:
        read_steps(file_of(tmp_path, **changes))
    assert caught.value.field == field and str(caught.value.file).endswith("steps.yaml")
