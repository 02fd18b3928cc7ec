"""The fit that ships with mapsearch: profiles by device and generation of software, and how far off they were.

Contents: Band, Shipped, shipped, written, profile_named, default_profile, DEFAULT_FAMILY, DEFAULT_EPOCH.

The file is the output of `mapsearch calibrate rows benchmarks/published`; the same rows give the same file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np

from mapsearch import documents
from mapsearch.calibration.allocator import Fragmentation, with_fragmentation
from mapsearch.calibration.fit import BLOCKS, Fit, Observation
from mapsearch.calibration.parameters import NAMES, PARAMETERS, applied, with_fields
from mapsearch.errors import InputError, listed, near_miss
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.profiles import load_profile, profile_for, profile_names
from mapsearch.quantity import Floats
from mapsearch.topologies.fabric import Fabric

DEFAULT_FAMILY = "megatron"
DEFAULT_EPOCH = "2026"
FEW = 8
"""Rows below which a group is too small to speak for itself."""
SHARE = 0.68
"""Share of the rows that a band covers."""


@dataclass(frozen=True)
class Band:
    """How far predictions of comparable runs were off when their source was left out of the fit."""

    group: str
    rows: int
    share: float
    """Two thirds of the rows were within this share of their measured step time."""
    order_share: float
    """The same after the bias of each study is taken off: what decides whether two mappings can be told apart."""

    @property
    def rests_on(self) -> str:
        """The statement that goes with the number."""
        return (
            f"{SHARE:.0%} of {self.rows} measured runs ({self.group}) lay within {self.share:.0%} of the estimate when "
            f"their source was left out of the fit, and within {self.order_share:.0%} in comparison with runs of "
            "their study"
        )


@dataclass(frozen=True)
class Shipped:
    """The fit and its bands."""

    fit: Fit
    rows: int
    sources: int
    counts: dict[str, dict[str, int]]
    """Block: {name: rows}."""
    bands: dict[str, Band]
    releases: dict[str, tuple[str, str]]
    """Release of the software: its family and year."""
    fragmentation: Fragmentation

    @property
    def largest_releases(self) -> list[str]:
        """The releases with most rows, by name."""
        counts = self.counts.get("release", {})
        return sorted(sorted(counts, key=lambda name: -counts[name])[:FEW])

    def profile(
        self, base: Profile, family: str = DEFAULT_FAMILY, epoch: str = DEFAULT_EPOCH, release: str = ""
    ) -> Profile:
        """A built-in profile under one generation of software; as it is when no row ran on its device."""
        if base.name not in self.fit.own.get("device", {}):
            return base
        fitted = rounded(applied(base, self.fit.logs(device=base.name, family=family, epoch=epoch, release=release)))
        own = self.counts.get("device", {}).get(base.name, 0)
        runs = self.counts.get("release", {}).get(release, 0)
        of = f", {runs} of {release}" if runs else ""
        note = f"fitted: {self.rows} measured runs, {own} on {base.name}{of}; {family} {epoch}"
        shown = marked(fitted, note).model_copy(update={"evidence": "fitted"})
        return with_fragmentation(shown, self.fragmentation, family)

    def band(self, base: Profile, arch: str) -> Band | None:
        """The band of the nearest group with enough rows; None for a device on which no run was measured."""
        if base.name not in self.fit.own.get("device", {}):
            return None
        for group in (f"{base.name} {arch}", base.name, f"all {arch}"):
            if group in self.bands:
                return self.bands[group]
        return self.bands.get("all")


def rounded(profile: Profile) -> Profile:
    """The profile with its fitted fields to four digits: more would pretend to be known."""
    changes = {}
    for field in dict.fromkeys(field for parameter in PARAMETERS for field in parameter.fields):
        value: Any = profile
        for part in field.split("."):
            value = getattr(value, part)
        if value is not None:
            changes[field] = float(f"{value:.4g}")
    return with_fields(profile, changes)


def marked(profile: Profile, note: str) -> Profile:
    """The profile with the source of every fitted field set to `note`."""
    updates: dict[str, Any] = {}
    flat = dict(profile.sources)
    for parameter in PARAMETERS:
        for field in parameter.fields:
            head, _, rest = field.partition(".")
            if not rest:
                flat[head] = note
                continue
            record = updates.get(head, getattr(profile, head))
            updates[head] = record.model_copy(update={"sources": {**record.sources, rest: note}})
    return profile.model_copy(update={**updates, "sources": flat})


def bands_of(rows: list[Observation], residuals: Floats) -> dict[str, Band]:
    """Bands per device and kind of model, per device, per kind and over all, from left-out log residuals."""
    studies = np.array([row.case.groups.study for row in rows])
    centred = residuals.copy()
    for study in set(studies):
        centred[studies == study] -= np.median(residuals[studies == study])
    sizes = {study: int((studies == study).sum()) for study in set(studies)}
    in_study = np.array([sizes[study] > 2 for study in studies])
    groups: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        arch = row.case.groups.arch
        for name in (f"{row.device} {arch}", row.device, f"all {arch}", "all"):
            groups.setdefault(name, []).append(index)
    found = {}
    for name, members in sorted(groups.items()):
        compared = [i for i in members if in_study[i]]
        if len(members) < FEW or len(compared) < FEW:
            continue
        share = float(np.quantile(np.abs(np.expm1(residuals[members])), SHARE))
        order = float(np.quantile(np.abs(np.expm1(centred[compared])), SHARE))
        found[name] = Band(name, len(members), round(share, 3), round(order, 3))
    return found


def written(fitted: Fit, rows: list[Observation], residuals: Floats, memory: Fragmentation) -> str:
    """The shipped file as YAML text: factors (not logarithms) to four digits, the bands, and the fit of memory."""

    def factors(logs: Floats) -> dict[str, float]:
        return {name: float(f"{math.exp(value):.4g}") for name, value in zip(NAMES, logs, strict=True)}

    releases = {row.release: {"family": row.family, "epoch": row.epoch} for row in rows}
    counts = {block: _counted(getattr(row, block) for row in rows) for block in BLOCKS}
    document = {
        "rows": len(rows),
        "sources": sorted({row.case.groups.source for row in rows}),
        "shared": factors(fitted.shared),
        "own": {
            block: {n: factors(v) for n, v in sorted(vectors.items())} for block, vectors in sorted(fitted.own.items())
        },
        "counts": counts,
        "releases": dict(sorted(releases.items())),
        "bands": {
            name: {"rows": band.rows, "share": band.share, "order_share": band.order_share}
            for name, band in bands_of(rows, residuals).items()
        },
        "memory": memory_document(memory),
    }
    return documents.dump(document)


def memory_document(fitted: Fragmentation) -> dict[str, Any]:
    """The fit of memory as plain data: factors of reserved over allocated bytes, to four digits."""
    own = {name: float(f"{math.exp(value):.4g}") for name, value in sorted(fitted.own.items())}
    return {
        "rows": fitted.rows,
        "sources": list(fitted.sources),
        "reserved_over_allocated": {"shared": float(f"{math.exp(fitted.shared):.4g}"), "family": own},
    }


def read_memory(document: dict[str, Any]) -> Fragmentation:
    """The fit of memory from its document."""
    factors = document["reserved_over_allocated"]
    own = {name: math.log(value) for name, value in factors["family"].items()}
    return Fragmentation(math.log(factors["shared"]), own, document["rows"], tuple(document["sources"]))


def _counted(names: Iterable[str]) -> dict[str, int]:
    listed_names = list(names)
    return {name: listed_names.count(name) for name in sorted(set(listed_names))}


@lru_cache(maxsize=1)
def shipped() -> Shipped:
    """The fit in the package."""
    text = (resources.files("mapsearch.calibration") / "catalogue" / "fit.yaml").read_text(encoding="utf-8")
    return read(documents.parse(text, file="fit.yaml (built in)"))


def read(document: dict[str, Any]) -> Shipped:
    """A fit from its document."""

    def logs(factors: dict[str, float]) -> Floats:
        # A fit that was made before a parameter existed leaves its fields as they are.
        return np.array([math.log(float(factors.get(name, 1.0))) for name in NAMES])

    own = {block: {name: logs(v) for name, v in vectors.items()} for block, vectors in document["own"].items()}
    bands = {name: Band(name, **values) for name, values in document["bands"].items()}
    releases = {name: (said["family"], said["epoch"]) for name, said in document["releases"].items()}
    fitted = Fit(logs(document["shared"]), own)
    memory = read_memory(document["memory"])
    return Shipped(fitted, document["rows"], len(document["sources"]), document["counts"], bands, releases, memory)


def profile_named(text: str) -> Profile:
    """A profile by path or name: `h100` is the fit for today's Megatron.

    `h100@fsdp-2024` is that of another family and year, `h100@nemo-25.04-2025` that of one release, and
    `h100@unfitted` the built-in profile as written. Raises InputError for a generation that no row was of.
    """
    name, _, wish = text.partition("@")
    if name not in profile_names():
        return load_profile(text)
    base = load_profile(name)
    if wish == "unfitted":
        return base
    found = shipped()
    if not wish:
        return found.profile(base)
    if wish in found.releases:
        return found.profile(base, *found.releases[wish], release=wish)
    family, dash, epoch = wish.rpartition("-")
    forms = "NAME@FAMILY-YEAR, NAME@RELEASE or NAME@unfitted"
    if not dash:
        raise InputError(f"{wish!r} is not a fit{near_miss(wish, found.releases)}; write {forms}", file=text)
    for block, value in (("family", family), ("epoch", epoch)):
        known = found.fit.own.get(block, {})
        if value not in known:
            near = near_miss(value, known) or near_miss(wish, found.releases)
            raise InputError(
                f"no measured run is of {block} {value!r}{near}; there are {listed(sorted(known))}; write {forms}, a "
                f"release such as {listed(found.largest_releases)}",
                file=text,
            )
    return found.profile(base, family, epoch)


def default_profile(fabric: Fabric) -> Profile:
    """The built-in profile of a fabric's device, fitted where runs on it were measured. Raises MissingFact."""
    return shipped().profile(profile_for(fabric))
