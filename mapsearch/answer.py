"""The typed, versioned answer of a solve; its JSON is what `--format json` prints.

Contents: SCHEMA, Status, Margin, Binding, RankedMapping, Space, Proof, Price, Conflict, Relaxation, Change,
JointRelaxation, CoreUse, Answer, CHECK_SCHEMA, CheckReport, data_frame, row.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mapsearch.errors import BackendMissing

SCHEMA = "mapsearch.answer/1"
CHECK_SCHEMA = "mapsearch.check/1"

Status = Literal["optimal", "feasible", "infeasible", "unknown"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Margin(_Record):
    """One relation on one mapping."""

    relation: str
    demand: float
    limit: float
    unit: str
    margin: float
    origin: str = "physics"
    """physics, placement, user, or the framework whose rule it is."""
    reason: str = ""


class Binding(_Record):
    """The relation that binds in value: the least relaxation that unlocks a faster mapping."""

    relation: str
    lever: str
    """What to change, in the user's words: `HBM per device +6.1 GB`."""
    relax_by: float
    unit: str
    unlock: str
    """What then becomes feasible: the axes that differ, `PP16 -> PP8`."""
    gain: float
    """Share of the step time that it saves."""
    step_time_s: float
    """Step time of the unlocked mapping."""


class ErrorBand(_Record):
    """How far step times may be off, by runs that were measured and left out of the fit."""

    group: str
    """The measured runs it rests on: device and kind of model, or what is nearest to them."""
    rows: int
    share: float
    """Two thirds of those runs were within this share of their estimate."""
    order_share: float
    """The same in comparison with other runs of the same study: closer mappings cannot be told apart."""
    statement: str


class BetterLayout(_Record):
    """The best of all layouts of one mapping, where that is another one."""

    layout: list[int]
    """Layers of each pipeline stage, MTP modules not counted."""
    step_time_s: float
    fits: bool
    """True when the mapping itself breaks a relation and with this layout none does; else it is faster."""


class RankedMapping(_Record):
    """One feasible mapping with everything that was estimated about it (SI units)."""

    rank: int
    sizes: dict[str, int]
    """tp, cp, dp, pp, etp, ep, edp, vpp, micro_batch, zero."""
    choices: dict[str, str]
    """schedule, recompute, offload, cp_kind, dispatcher, as words."""
    placement: dict[str, dict[str, int]]
    """Axis: {level: ways it is cut there}, levels innermost first, cuts of 1 left out."""
    layout: list[int] = []
    """Layers of each pipeline chunk as the mapping cuts them, MTP modules not counted; empty: as frameworks cut."""
    recompute_stages: int = 0
    """Stages from the first on that recompute, where the others recompute nothing; 0: all do."""
    devices: int
    microbatches: int
    layers_per_stage: list[int]
    step_time_s: float
    separable: bool = True
    """False when the model cannot tell it from the first mapping: closer than the error band's `order_share`."""
    tokens_per_s: float
    mfu: float
    hfu: float
    breakdown_s: dict[str, float]
    """Parts of the step that add up to step_time_s."""
    communication_s: dict[str, float]
    """Communication per class and step, hidden or not."""
    exposed_s: dict[str, float]
    """The part of it that is not hidden."""
    exposed_fraction: float
    peak_memory_bytes: float
    """Worst stage, reserve not included."""
    memory_limit_bytes: float
    worst_stage: int
    memory_bytes: dict[str, float]
    """Parts of the worst stage's peak; they add up to peak_memory_bytes."""
    memory_by_stage_bytes: list[float]
    margins: list[Margin]
    binding: Binding | None = None
    binding_note: str = ""
    """Said when no single relaxation was found to help."""
    better_layout: BetterLayout | None = None
    """None when its own layout is the fastest that fits, or when that is not known (docs/reference/answer.md)."""


class Space(_Record):
    """How large the searched space was, and how much of it was looked at."""

    mappings: int
    cells: int
    pairs_evaluated: int
    grid_options: int = 0


class Proof(_Record):
    """One proof of the ranking by one backend."""

    backend: str
    status: Literal["proven", "exact", "not proven", "disagrees"]
    """`exact` is the decomposition's own statement: it went through the whole space, and nobody else has looked."""
    kind: str
    """`exhaustion`, `all cells`, `cells under the cutoff` (leans on the decomposition's bounds), `cutoff alone` (leans
    on none of them), `memory floor of every cell` (nothing fits by the bounds alone; the backend is then `bounds`), or
    `bounds and exact evaluation` (the backend is then `decomposition`)."""
    leans_on: str = ""
    """What has to be right, apart from the backend, for the statement to hold."""
    cells: int | None = None
    """Cells that the statement covers one by one."""
    cells_solved: int | None = None
    """Cells that reached the solver; the others were excluded before, as `detail` says."""
    bound_s: float | None = None
    seconds: float = Field(default=0.0, exclude=True)
    """Wall time; left out of the JSON so that equal inputs give equal bytes."""
    detail: str = ""


class Price(_Record):
    """What it would cost to hold an axis inside the high-bandwidth domain: the best mapping that does, searched too."""

    axis: str
    unit: str
    """What one high-bandwidth domain is called: `board`."""
    step_time_s: float | None
    """Step time of that mapping; None when none is feasible."""
    price: float | None
    """By how much it is longer than the best one's, as a share of that; 0 when the best one holds it inside anyway."""


class Conflict(_Record):
    """A minimal set of relations that no mapping satisfies together."""

    relations: list[str]
    sentences: list[str]
    """One per relation, with its numbers."""
    fields: list[list[str]] = []
    """Per relation: the fields that its limit comes from, `asic-64: device.hbm`."""
    kind: Literal["physics", "framework", "user", "mixed"] = "physics"
    """Whose rules they are: of physics and cluster alone, of a framework as well, the user's own alone, or those and
    others."""
    statement: str = ""
    """The kind in a sentence."""
    restates: int = 0
    """The number of the conflict, from 1 on, that is the same fact told by another rule; 0 for a fact of its own."""


class Relaxation(_Record):
    """The least change of one lever that makes something fit, and what then fits."""

    lever: str
    """`devices 64 -> 1,024`."""
    relation: str
    from_value: float
    to_value: float
    unit: str
    mapping: str
    """The resulting mapping in a line."""
    step_time_s: float | None = None
    name: str = ""
    """What is changed: `hbm`, `bandwidth.rack`, `sequence_length`, `recompute`; `rules` where some are dropped."""
    choice: str = ""
    """What the run then offers as well (`full`), or how its record is set (`gradient_bytes 2`); empty for a number."""
    dropped: list[str] = []
    """Relations that are dropped."""
    fails_at: float | None = None
    """The nearest smaller change that was searched too, and with which nothing fits."""
    certified: bool = True
    """True: searched again, and the mapping's own estimate satisfies every relation."""


class Change(_Record):
    """One lever of a joint relaxation."""

    name: str
    lever: str
    from_value: float
    to_value: float
    unit: str
    weight: float
    cost: float
    """The weight times the doublings or halvings of the value."""


class JointRelaxation(_Record):
    """The cheapest change of several levers together under given weights, and what then fits."""

    changes: list[Change]
    """Levers that are changed; those left as they are do not count."""
    cost: float
    weights: dict[str, float]
    grid: str
    """The values that were tried, in words."""
    proven: bool
    """True when every cheaper combination of these values was refuted."""
    mapping: str
    step_time_s: float | None = None
    certified: bool = True


class CoreUse(_Record):
    """What the first mapping takes of an irregular cluster, and what it leaves."""

    units: dict[str, int]
    """Level: units of it in one unit of the level outside, innermost first."""
    devices: int
    spares: list[str]
    """Whole units that would serve and are not needed."""
    spare_devices: int
    stranded: list[str]
    """Units in which something works, left out since too little of them does."""
    stranded_devices: int
    out_of_place: int
    """Units that fill other places than their siblings, since one of those is broken: they send across rails."""
    searched: list[dict[str, int]]
    """The choices of units that were searched, most devices first."""


class Provenance(_Record):
    """Inputs and versions: enough to run the same search again."""

    version: str
    model: str
    run: str
    topology: str
    profile: str
    devices: int | None = None
    """Number of devices that the topology was scaled to, when one was asked for."""
    overrides: dict[str, list[str]] = {}
    """What the command line changed in the run, by option: `{"sequence_length": ["4096"], "fix": ["tp=8"]}`."""
    input_sha256: dict[str, str]
    assumptions: list[str]
    """Assumed or fitted values that the numbers rest on."""
    libraries: dict[str, str]


class Answer(_Record):
    """What `solve` returns."""

    schema_: str = Field(default=SCHEMA, alias="schema")
    status: Status
    bound_s: float | None
    """Proven lower bound of the best step time."""
    gap: float | None
    """(best - bound) / best; 0 when proven."""
    space: Space
    proofs: list[Proof]
    provenance: Provenance
    mappings: list[RankedMapping]
    band: ErrorBand | None = None
    """Error band of the step times; None where no run on the device was measured, or the profile is not fitted."""
    conflicts: list[Conflict] = []
    relaxations: list[Relaxation] = []
    conflicts_complete: bool = False
    """True when `conflicts` holds every minimal conflict there is."""
    joint: JointRelaxation | None = None
    """The cheapest joint relaxation, where one was asked for."""
    rejections: dict[str, int] = {}
    """How many joint mappings each relation alone rejects, when nothing is feasible."""
    first_rejections: dict[str, int] = {}
    """How many joint mappings each relation rejects that all relations before it accept, in the order of the list."""
    rejections_of: int = 0
    """Joint mappings that were counted, before any relation."""
    rejections_note: str = ""
    """What was counted, and what was not."""
    prices: list[Price] = []
    """One for each axis whose placement the run prices."""
    core: CoreUse | None = Field(default=None, exclude_if=lambda core: core is None)
    """Of an irregular cluster; left out of the JSON of a regular one."""
    notes: list[str] = []
    interrupted: bool = False
    """True when the search was stopped by the user; what was found until then is in `mappings`."""
    timings_s: dict[str, float] = Field(default_factory=dict, exclude=True)
    """Wall times of the phases; left out of the JSON so that equal inputs give equal bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)

    @property
    def best(self) -> RankedMapping | None:
        """The first mapping, or None."""
        return self.mappings[0] if self.mappings else None

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same answer."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with a row per mapping. Raises BackendMissing when pandas is not installed."""
        return data_frame([row(mapping) for mapping in self.mappings])

    def _repr_html_(self) -> str:
        """The ranked table, for notebooks."""
        from html import escape

        rows = [row(mapping) for mapping in self.mappings]
        title = f"<p>{escape(self.status)}: {len(rows)} mappings</p>"
        if not rows:
            return title
        head = "".join(f"<th>{escape(str(name))}</th>" for name in rows[0])
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in line.values()) + "</tr>" for line in rows
        )
        return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class CheckReport(_Record):
    """What `check` returns: one mapping, and every relation with its margin."""

    schema_: str = Field(default=CHECK_SCHEMA, alias="schema")
    feasible: bool
    """True when no relation is broken."""
    mapping: RankedMapping | None
    """The estimate, or None when the mapping is too broken to be evaluated."""
    margins: list[Margin]
    """Every relation, in the order of the constraint list."""
    provenance: Provenance | None = None
    notes: list[str] = []

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)

    @property
    def broken(self) -> list[Margin]:
        """The relations that do not hold."""
        return [margin for margin in self.margins if margin.margin < 0.0]

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same report."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


def data_frame(rows: list[dict[str, Any]]) -> Any:
    """Flat records as a pandas DataFrame. Raises BackendMissing when pandas is not installed."""
    try:
        import pandas
    except ImportError:
        raise BackendMissing("pandas is not installed; pip install 'mapsearch[all]'") from None
    return pandas.DataFrame(rows)


def row(mapping: RankedMapping) -> dict[str, Any]:
    """One mapping as a flat record: what CSV and data frames show."""
    return {
        "rank": mapping.rank,
        "step_time_s": mapping.step_time_s,
        "tokens_per_s": mapping.tokens_per_s,
        "mfu": mapping.mfu,
        "hfu": mapping.hfu,
        "peak_memory_bytes": mapping.peak_memory_bytes,
        "memory_limit_bytes": mapping.memory_limit_bytes,
        "exposed_fraction": mapping.exposed_fraction,
        "devices": mapping.devices,
        "microbatches": mapping.microbatches,
        **mapping.sizes,
        **mapping.choices,
        "placement": "; ".join(
            f"{axis}=" + "*".join(f"{level}:{ways}" for level, ways in cuts.items())
            for axis, cuts in mapping.placement.items()
        ),
        "layout": "-".join(map(str, mapping.layout)),
        "recompute_stages": mapping.recompute_stages,
        "binding": mapping.binding.relation if mapping.binding else "",
        "lever": mapping.binding.lever if mapping.binding else "",
        "gain": mapping.binding.gain if mapping.binding else 0.0,
    }
