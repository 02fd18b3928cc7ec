"""A user's own measured steps, and the profile that fits them.

Contents: Conditions, MeasuredStep, MeasuredSteps, Step, StepsFit, read_steps, fit_steps.

The fit starts from the profile that would be used without it and moves the same few factors as the fit to published
rows (`parameters.PARAMETERS`), each held towards nothing by its prior: a few steps move what they speak about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from mapsearch import documents
from mapsearch.calibration.fit import evaluated, fit, held_out, logs_of
from mapsearch.calibration.parameters import NAMES, applied
from mapsearch.calibration.shipped import default_profile, marked, profile_named, rounded
from mapsearch.costs.estimate import Point, layout_trouble, point_of
from mapsearch.costs.views import Facts
from mapsearch.errors import InputError
from mapsearch.inventories.base import Inventory, load_inventory, validate
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.models import load_model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import ComputePrecision, Run
from mapsearch.quantity import Floats
from mapsearch.topologies import fabric_of, load_topology
from mapsearch.topologies.scale import scaled
from mapsearch.units import Seconds

ROUNDS = 8


class Conditions(Inventory):
    """What was run, on what: once for all steps, or for one of them."""

    model: str | None = None
    run: str | None = None
    topology: str | None = None
    devices: int | None = Field(default=None, gt=0)
    sequence_length: int | None = Field(default=None, gt=0)
    global_batch: int | None = Field(default=None, gt=0)
    precision: ComputePrecision | None = None


class MeasuredStep(Conditions):
    """One measured step; what it leaves out is as the file says for all."""

    kind: ClassVar[str] = "measured step"
    name: str = ""
    step_time: Seconds = Field(gt=0.0)
    """Seconds of one optimizer step, once it is steady: leave the first steps out."""
    mapping: str | dict[str, Any]
    """A mapping as `check` reads it, here or in a file of its own."""


class MeasuredSteps(Conditions):
    """Measured steps of one kind of device and one generation of software."""

    kind: ClassVar[str] = "list of measured steps"
    profile: str | None = None
    """Where the fit starts: a name or a file, as for --profile; the device's profile when left out."""
    steps: list[MeasuredStep] = Field(min_length=1, max_length=1_000)


@dataclass(frozen=True)
class Step:
    """One measured step as the fit sees it."""

    name: str
    profile: Profile
    points: tuple[Point, ...]
    measured_s: float
    tuned: bool = False


@dataclass(frozen=True)
class StepsFit:
    """A fitted profile, and log(predicted / measured) of every step before the fit, in it, and left out of it."""

    file: str
    steps: tuple[Step, ...]
    profile: Profile
    factors: dict[str, float]
    before: Floats
    inside: Floats
    left_out: Floats | None
    """None where there is one step only."""


def read_steps(path: str) -> list[Step]:
    """The steps of a YAML file. Raises InputError naming file and field."""
    folder = Path(path).parent
    told = validate(MeasuredSteps, documents.load(path), file=path)
    found: list[Step] = []
    for place, step in enumerate(told.steps):
        where = f"steps.{place}"
        facts = _facts(told, step, folder, path, where)
        if found and facts.profile != found[0].profile:
            raise InputError(
                f"is on {facts.profile.name}, and steps.0 on {found[0].profile.name}; one file is fitted to one "
                "profile: write a file for each kind of device",
                file=path,
                field=f"{where}.topology",
            )
        point = point_of(_mapping(step, folder, path, where), facts)
        trouble = layout_trouble(point)
        if trouble:
            raise InputError(f"cannot be estimated: {trouble}", file=path, field=f"{where}.mapping")
        found.append(Step(step.name or f"step {place + 1}", facts.profile, (point,), step.step_time))
    return found


def _near(name: str, folder: Path) -> str:
    """A file beside the list of steps, else the name as it stands."""
    beside = folder / name
    return str(beside) if documents.is_file(beside) else name


def _mapping(step: MeasuredStep, folder: Path, file: str, where: str) -> Mapping:
    if isinstance(step.mapping, str):
        beside = _near(step.mapping, folder)
        return validate(Mapping, documents.load(beside), file=beside)
    try:
        return validate(Mapping, step.mapping, file=file)
    except InputError as problem:
        inner = f".{problem.field}" if problem.field else ""
        raise InputError(problem.problem, file=file, field=f"{where}.mapping{inner}") from None


def _facts(told: MeasuredSteps, step: MeasuredStep, folder: Path, file: str, where: str) -> Facts:
    def said(key: str) -> Any:
        own = getattr(step, key)
        return getattr(told, key) if own is None else own

    def needed(key: str) -> str:
        name = said(key)
        if name is None:
            raise InputError(f"has no {key}; name one there, or once for all steps", file=file, field=where)
        return _near(name, folder)

    run = load_inventory(Run, needed("run"))
    changes = {key: said(key) for key in ("sequence_length", "global_batch", "precision") if said(key) is not None}
    run = run.replaced(**changes) if changes else run
    spec = load_topology(needed("topology"))
    devices = said("devices")
    fabric = fabric_of(spec if devices is None else scaled(spec, devices))
    profile = default_profile(fabric) if told.profile is None else profile_named(_near(told.profile, folder))
    return Facts(load_model(needed("model")), run, fabric, profile)


def fit_steps(steps: Sequence[Step], *, file: str, rounds: int = ROUNDS) -> StepsFit:
    """The profile that fits the steps, and how far off each is before, in and left out of the fit."""
    fitted, table = fit(steps, kinds=(), rounds=rounds, processes=1)
    nothing = np.zeros(len(NAMES), dtype=np.float64)
    before = evaluated(steps, lambda step: nothing, slopes=False, processes=1)[:, 0]
    left_out = None
    if len(steps) > 1:
        places = {id(step): place for place, step in enumerate(steps)}
        left_out = held_out(steps, fitted, table, lambda step: places[id(step)], processes=1)
    base = steps[0].profile
    moved = rounded(applied(base, logs_of(fitted, steps[0])))
    note = f"fitted: {len(steps)} measured steps of {Path(file).name}, from {base.name}"
    profile = marked(moved, note).model_copy(update={"name": f"{base.name}-{Path(file).stem}", "evidence": "fitted"})
    factors = {name: float(np.exp(log)) for name, log in zip(NAMES, fitted.shared, strict=True)}
    return StepsFit(file, tuple(steps), profile, factors, before, table[:, 0], left_out)
