"""What a contract is about, and how a row of it is made.

Contents: RowKind, Text, Pool, ContractCase, UNVERIFIED, tag_of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from mapsearch import axes
from mapsearch.answer import ErrorBand
from mapsearch.contract import Band, Origin, Recipe, Row, Sense, Verdict
from mapsearch.costs.estimate import Estimate, Point, estimate_point, number, point_of
from mapsearch.costs.views import Facts
from mapsearch.errors import InputError
from mapsearch.expert_load import ExpertLoad
from mapsearch.inventories.manifest import Manifest
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.placing.placed import Placed, placed_of
from mapsearch.records import Record
from mapsearch.solver.provenance import Named
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.spec import Topology

RowKind = Literal["count", "time", "model"]
"""`count`: a number that follows from sizes alone, so measured it must be the same; `time`: the calibration's band
speaks for it; `model`: nobody has said how far off it may be."""
TAGS = ("measured", "datasheet", "fitted", "assumed")
UNVERIFIED = ("assumed", "not said")
"""Tags of a number that nobody has seen on a machine or in a datasheet."""
SAME = 0.005
"""Share within which two counts are the same: logs print three digits."""


class Text(NamedTuple):
    """What a row says whatever its numbers are; domains keep them in tables."""

    meaning: str
    unit: str
    compute: str
    kind: RowKind = "count"


@dataclass(frozen=True)
class Pool:
    """What is known of the rollout side; None is not given."""

    bytes_per_s: float | None = None
    """End to end from training to one rollout replica."""
    replicas: int | None = None
    weight_format: str | None = None
    """A key of `costs.publishing.FORMATS`."""
    tree: bool = True
    quantise_s: float | None = None
    reshard_s: float | None = None
    verify_s: float | None = None
    switch_s: float | None = None
    rollout_tokens_per_s: float | None = None
    """Effective: tokens that survive the filter and enter a batch."""
    generate_s: float | None = None
    queue_tokens: float | None = None
    most_queue_tokens: float | None = None
    least_queue_tokens: float | None = None
    version_lag: float | None = None
    """Versions that a sample may be older than the weights that train on it."""
    lag: float | None = None
    """Versions that samples are older at most; computed where it is not given."""
    step_s: float | None = None
    """The step of both pools together; that of training by itself where it is not given."""
    transfer_s: float | None = None
    publish_s: float | None = None
    """Where stages overlap; their sum where it is not given."""
    budget_s: float | None = None
    """Longest publishing that keeps the step; computed where it is not given."""
    bound_s: float | None = None
    """No transfer between the pools is shorter."""
    peers: int | None = None
    """Ranks of one replica that a training rank sends to, at most."""
    pair_bytes: float | None = None
    sent_bytes: float | None = None
    received_bytes: float | None = None
    tp: int | None = None
    dp: int | None = None
    ep: int | None = None
    """Of one replica."""
    sequences: int | None = None
    """Requests under way in a replica."""
    gemm_format: str | None = None
    kv_format: str | None = None
    in_flight: str | None = None
    """What happens to requests under way when their replica switches."""
    manifest: Manifest | None = None
    """Of a published version."""


@dataclass(frozen=True)
class ContractCase:
    """One mapping, what it was costed with, and where those inputs came from."""

    point: Point
    named: dict[str, Named]
    source: str
    band: ErrorBand | None = None
    pool: Pool = field(default_factory=Pool)
    load: ExpertLoad | None = None
    """Loads of the router, measured or synthetic."""

    @property
    def facts(self) -> Facts:
        """Model, run, fabric and profile."""
        return self.point.facts

    @property
    def model(self) -> Model:
        """The model."""
        return self.facts.model

    @property
    def run(self) -> Run:
        """The run."""
        return self.facts.run

    @property
    def fabric(self) -> Fabric:
        """The levels."""
        return self.facts.fabric

    @property
    def profile(self) -> Profile:
        """The efficiencies."""
        return self.facts.profile

    @property
    def mapping(self) -> Mapping:
        """The mapping."""
        return self.point.mapping

    @property
    def topology(self) -> Topology | None:
        """The cluster as described; None when only its levels were given."""
        record = self.named["topology"].record
        return record if isinstance(record, Topology) else None

    @cached_property
    def placed(self) -> Placed | None:
        """The device of every rank, and all groups; None when only the levels of the cluster were given."""
        return None if self.topology is None else placed_of(self.mapping, self.topology, self.fabric)

    @cached_property
    def estimate(self) -> Estimate:
        """The mapping costed in parts."""
        return estimate_point(self.point)

    @cached_property
    def tokens(self) -> float:
        """Tokens of one microbatch per rank at a layer's entrance."""
        return number(self.point.cell.tokens)

    @cached_property
    def told(self) -> dict[str, Any]:
        """Facts as the quantities of time take them."""
        return {"model": self.model, "run": self.run, "fabric": self.fabric, "profile": self.profile}

    @cached_property
    def shaped(self) -> dict[str, Any]:
        """Facts as the quantities that know no time take them."""
        return {"model": self.model, "run": self.run}

    def under(self, **changes: Any) -> Point:
        """The same mapping with other choices, as a point."""
        return point_of(self.mapping.model_copy(update=changes), self.facts)

    def row(
        self,
        name: str,
        domain: int,
        meaning: str,
        predicted: float | str | None,
        unit: str,
        *,
        formula: str,
        origins: Sequence[str],
        record: str,
        compute: str,
        kind: RowKind = "count",
        limit: float | None = None,
        sense: Sense = "<=",
        advisory: bool = False,
        verdict: Verdict | None = None,
        why: str = "",
        parts: Iterable[str] = (),
        factors: dict[str, int] | None = None,
    ) -> Row:
        """A row of the contract; the verdict follows from value and limit unless it is given."""
        value = predicted if predicted is None or isinstance(predicted, str) else float(predicted)
        margin = margin_of(value, limit, sense)
        judged = verdict or verdict_of(value, None if advisory else margin)
        return Row(
            id=name,
            domain=domain,
            meaning=meaning,
            predicted=value,
            unit=unit,
            band=self._band(value, kind),
            limit=limit,
            sense=sense,
            margin=margin,
            advisory=advisory,
            verdict=judged,
            why=why,
            formula=formula,
            origins=[origin for path in origins for origin in self.origins(path)],
            recipe=Recipe(record=record, compute=compute),
            parts=list(parts),
            factors=factors or {},
        )

    def tabled(
        self,
        group: str,
        domain: int,
        texts: Dictionary[str, Text],
        values: Dictionary[str, Any],
        each: Dictionary[str, dict[str, Any]] | None = None,
        **shared: Any,
    ) -> list[Row]:
        """A row for every text that has a value, `group.name`; `each` has what single rows take besides."""
        told = []
        for name, text in texts.items():
            if name in values:
                more = {**shared, "kind": text.kind, "compute": text.compute, **(each or {}).get(name, {})}
                told.append(self.row(f"{group}.{name}", domain, text.meaning, values[name], text.unit, **more))
        return told

    def missing(
        self, name: str, domain: int, meaning: str, unit: str, *, needs: str, formula: str, record: str, compute: str
    ) -> Row:
        """A row that cannot be predicted, with exactly what it needs."""
        return self.row(
            name,
            domain,
            meaning,
            None,
            unit,
            origins=(),
            verdict="not given",
            why=needs,
            formula=formula,
            record=record,
            compute=compute,
        )

    def _band(self, value: float | str | None, kind: RowKind) -> Band | None:
        if not isinstance(value, float):
            return None
        if kind == "count":
            return Band(
                low=value - SAME * abs(value),
                high=value + SAME * abs(value),
                rests_on="a count of sizes, to the digits that a log prints",
            )
        if kind == "time" and self.band is not None:
            share = self.band.share
            return Band(low=value / (1.0 + share), high=value * (1.0 + share), rests_on=self.band.statement)
        return None

    def origins(self, path: str) -> list[Origin]:
        """Where one input stands: `run.routing.capacity_factor`; `topology.levels.*.bandwidth` is one per level."""
        kind, _, name = path.partition(".")
        if name.startswith("levels.") and self.topology is not None and not self.topology.levels:
            return self.origins("topology.links")  # levels are derived from cables
        if "*" in name:
            return [o for level in self.fabric.level_names for o in self.origins(path.replace("*", level))]
        if kind == "mapping":
            value = axes.written(name, getattr(self.mapping, name)) if name in axes.WORDS else ""
            shown = str(value or getattr(self.mapping, name, ""))
            return [Origin(document=kind, file=self.source, field=name, value=shown, tag="chosen")]
        named = self.named[kind]
        value, tag = found_in(named.record, name)
        return [Origin(document=kind, file=named.name, field=name, value=value, tag=tag)]

    def tag(self, path: str) -> str:
        """The tag of one input."""
        return self.origins(path)[0].tag


def verdict_of(value: float | str | None, margin: float | None) -> Verdict:
    """What a prediction and its limit say: without a limit only the machine can tell."""
    if value is None:
        return "not given"
    if margin is None:
        return "must be measured"
    return "holds" if margin >= 0.0 else "broken"


def margin_of(value: float | str | None, limit: float | None, sense: Sense) -> float | None:
    """How far a value stays on the right side of its limit; None without a limit."""
    if limit is None or not isinstance(value, float):
        return None
    if sense == "=":
        room = SAME * abs(limit) - abs(value - limit)
        return 0.0 if math.isclose(value, limit) else room
    return limit - value if sense == "<=" else value - limit


def tag_of(source: str) -> str:
    """measured, datasheet, fitted or assumed, whichever word the source begins with or holds first; else `not said`."""
    words = source.lower()
    places = {tag: words.find(tag) for tag in TAGS if tag in words}
    return min(places, key=lambda tag: places[tag]) if places else ("cited" if source else "not said")


def found_in(record: Record | Fabric, path: str) -> tuple[str, str]:
    """The value of a field as written, and its tag; looks through records, and through lists by name."""
    if isinstance(record, Fabric):
        inner, _, last = path.rpartition(".")
        sources = record.device.sources if inner == "device" else record.sources
        return "", tag_of(sources.get(last, sources.get(path.removeprefix("levels."), "")))
    here: Any = record
    source = ""
    written: Any = record.model_dump(mode="json")
    for part in path.split("."):
        if isinstance(here, list):
            names = [getattr(item, "name", "") for item in here]
            place = names.index(part)
            here, written = here[place], written[place]
        elif isinstance(here, dict):
            here, written = here.get(part), (written or {}).get(part)
        else:
            source = here.sources.get(part, source) if isinstance(here, Record) else source
            if not hasattr(here, part):
                raise InputError(f"has no field {path!r}")  # a slip in a domain; a test walks all rows
            here, written = getattr(here, part), (written or {}).get(part)
    if not source and isinstance(record, Profile):
        source = record.evidence
    shown = "" if isinstance(written, dict | list) and len(str(written)) > 80 else str(written)
    return shown, tag_of(source)


def changed(facts: Facts, **run: Any) -> Facts:
    """The same facts under a run with some fields changed."""
    return replace(facts, run=facts.run.replaced(**run))


def worst_of(verdicts: Iterable[Verdict]) -> Verdict:
    """What several verdicts say together: broken, then not given, then must be measured, then holds."""
    found = set(verdicts)
    order: tuple[Verdict, ...] = ("broken", "not given", "must be measured", "holds")
    return next((verdict for verdict in order if verdict in found), "holds")
