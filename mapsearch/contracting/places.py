"""Domain 10, topology: where every group lives, what it sends across which level, and who vouches for the links.

Contents: rows, AXES.
"""

from __future__ import annotations

from functools import partial

from mapsearch.axes import SIZES
from mapsearch.contract import Row, Verdict
from mapsearch.contracting.case import UNVERIFIED, ContractCase
from mapsearch.contracting.wire import Traffic, traffic_of
from mapsearch.costs import volumes
from mapsearch.costs.estimate import number
from mapsearch.placing.patterns import patterns_of
from mapsearch.topologies.fabric import Level

AXES = SIZES
"""Axes that have groups."""
CLASS_OF = {"tp": "tp", "cp": "cp", "dp": "dp", "pp": "pp", "etp": "ep", "ep": "ep", "edp": "dp"}
"""Class of communication that an axis' groups cause: ETP gathers belong to EP, EDP to DP."""
MAP = "the rank map that the job was started with, and the cables between its devices"
LINKS = "counters of one device's links before and after a step"


def rows(case: ContractCase) -> list[Row]:
    """A row per group kind, its verdict on links, and bytes by class and level."""
    by_level = [traffic_of(case.point, place) for place in range(len(case.fabric.levels))]
    whole = traffic_of(case.point)
    told = []
    for axis in AXES:
        if getattr(case.mapping, axis) > 1:
            told += _groups(case, axis, whole)
    return [*told, *_layers(case, whole), *_once(case, whole), *_levels(case, by_level)]


def crossed(case: ContractCase, axis: str) -> list[str]:
    """Names of the levels that the groups of an axis cross."""
    ways = case.point.rows[axis]
    return [level.name for level, cut in zip(case.fabric.levels, ways, strict=True) if cut > 1]


def _cuts(case: ContractCase, axis: str) -> str:
    ways = zip(case.fabric.levels, case.point.rows[axis], strict=True)
    return " × ".join(f"{int(cut)}@{level.name}" for level, cut in ways if cut > 1)


def _groups(case: ContractCase, axis: str, whole: Traffic) -> list[Row]:
    size, devices = getattr(case.mapping, axis), case.estimate.devices
    row = partial(case.row, domain=10, formula="F5.1, F6", record=MAP)
    levels = crossed(case, axis)
    origins = [f"mapping.{axis}", "mapping.placement"]
    told = [
        row(
            f"place.{axis}.groups",
            meaning=f"{axis.upper()} groups of {size}: {devices // size:,} of them, each cut {_cuts(case, axis)}",
            predicted=devices // size,
            unit="groups",
            origins=origins,
            compute="count the communicators of that axis, and the units that each one's devices sit in",
        ),
        *_patterns(case, axis, origins),
        *_link(case, axis, origins),
    ]
    wish = case.run.placement.get(axis)  # type: ignore[call-overload]
    if wish == "inside":
        names = case.fabric.level_names
        beyond = [name for name in levels if names.index(name) >= case.fabric.domain_levels]
        told.append(
            row(
                f"place.{axis}.inside",
                meaning=f"levels beyond the high-bandwidth domain that {axis.upper()} groups cross",
                predicted=len(beyond),
                unit="levels",
                origins=["run.placement", *origins],
                limit=0.0,
                why=f"run.placement.{axis} is inside",
                compute="levels outside the domain that any group spans",
            )
        )
    return told


def _patterns(case: ContractCase, axis: str, origins: list[str]) -> list[Row]:
    """Groups that spread alike over the cluster's units: how many, and the devices of the first one."""
    if case.placed is None:
        return []
    return [
        case.row(
            f"place.{axis}.kind_{place}",
            10,
            f"{axis.upper()} groups that spread like group {kind.first}, which sits on {kind.devices}"
            + (f" (all inside one {kind.inside})" if kind.inside else ""),
            kind.groups,
            "groups",
            formula="F5.1, F6",
            origins=origins,
            record=MAP,
            compute="groups whose devices touch as many units of every level; `mapsearch placement` lists every rank",
        )
        for place, kind in enumerate(patterns_of(case.placed, axis))
    ]


def _link(case: ContractCase, axis: str, origins: list[str]) -> list[Row]:
    """The slowest level that an axis' groups cross: what it must reach, and who says that it does."""
    levels = [level for level in case.fabric.levels if level.name in crossed(case, axis)]
    if not levels:
        return []
    slowest = min(levels, key=lambda level: level.bytes_per_s)
    verdict, why = _vouched(case, axis)
    field = f"topology.levels.{slowest.name}.bandwidth"
    return [
        case.row(
            f"place.{axis}.link_bytes_per_s",
            10,
            f"bandwidth per device, one way, of the slowest level that {axis.upper()} groups cross: {slowest.name}",
            slowest.bytes_per_s,
            "bytes/s",
            kind="model",
            formula="F4.4",
            origins=[*origins, field, "profile.all_gather.peak"],
            limit=slowest.bytes_per_s * reached_share(case, slowest),
            sense=">=",
            verdict=verdict,
            why=f"what the profile takes to be reached; {why}",
            record=f"all devices on either side of a {slowest.name} sending to one another at once, large messages",
            compute="bytes over seconds, per device and direction",
        )
    ]


def reached_share(case: ContractCase, level: Level) -> float:
    """Share of a level's bandwidth that large collectives reach, as the profile says."""
    efficiency = case.profile.all_gather
    high = efficiency.high_bandwidth_peak if level.high_bandwidth else None
    return efficiency.peak if high is None else high


def _vouched(case: ContractCase, axis: str) -> tuple[Verdict, str]:
    """No hot group spans an unverified slow link: measured or published bandwidths hold, others must be measured."""
    tags = {name: case.tag(f"topology.levels.{name}.bandwidth") for name in crossed(case, axis)}
    unseen = [name for name, tag in tags.items() if tag in UNVERIFIED]
    if not unseen:
        return "holds", "the bandwidth of every level that it crosses is measured or published"
    exposed = case.estimate.exposed_s.get(CLASS_OF[axis], 0.0) / case.estimate.step_time_s
    words = ", ".join(f"{name} is {tags[name]}" for name in unseen)
    return "must be measured", f"bandwidth of {words}; its communication costs {exposed:.1%} of the step"


def _layers(case: ContractCase, whole: Traffic) -> list[Row]:
    """Bytes of one layer and microbatch by class, per rank."""
    row = partial(
        case.row,
        domain=10,
        unit="bytes",
        formula="F4.2",
        origins=["model.hidden", "mapping.micro_batch", "mapping.tp", "mapping.cp"],
        record="bytes of every collective of one layer on one rank, forward and backward apart",
    )
    told = [
        row(
            "place.tp.hidden_bytes",
            meaning="X: hidden states of a whole TP group, what one all-gather or reduce-scatter moves",
            predicted=number(volumes.hidden_bytes(case.tokens, case.mapping.tp, model=case.model)),
            compute="size of the full tensor",
        ),
        row(
            "place.tp.wire_bytes",
            meaning="of it what leaves one rank in one all-gather or reduce-scatter",
            predicted=number(volumes.hidden_bytes(case.tokens, case.mapping.tp - 1, model=case.model)),
            compute="(TP - 1)/TP of the full tensor",
        ),
    ]
    for name, (forward, backward) in whole.layer.items():
        if not forward and not backward:
            continue
        what = "all hops of one microbatch" if name == "pp" else "one layer and microbatch"
        for way, sent in (("forward", forward), ("backward", backward)):
            told.append(
                row(
                    f"place.{name}.{way}_bytes",
                    meaning=f"{name.upper()}: bytes that leave one rank, {what}, {way}",
                    predicted=sent,
                    compute="bytes sent to other ranks",
                )
            )
    return told


def _once(case: ContractCase, whole: Traffic) -> list[Row]:
    """Reduction of gradients and gathering of weights, once per step."""
    row = partial(
        case.row,
        domain=10,
        unit="bytes",
        formula="F4.2",
        origins=["run.state.gradient_reduce_bytes", "mapping.zero", "mapping.dp", "mapping.edp"],
        record="bytes of the data-parallel collectives of one step on a rank of the largest stage",
    )
    told = []
    for grid, (reduce, gather) in (("dp", whole.dense_once), ("edp", whole.expert_once)):
        for what, sent in (("reduce", reduce), ("gather", gather)):
            if sent:
                told.append(
                    row(
                        f"place.{grid}.{what}_bytes",
                        meaning=f"{grid.upper()}: bytes that leave one rank, {what} of one step",
                        predicted=sent,
                        compute="bytes sent to other ranks",
                    )
                )
    return told


def _levels(case: ContractCase, by_level: list[Traffic]) -> list[Row]:
    """Bytes of one step by level and class, per device."""
    told = []
    for level, found in zip(case.fabric.levels, by_level, strict=True):
        for name, sent in found.step.items():
            if not sent:
                continue
            field = f"topology.levels.{level.name}.bandwidth"
            told.append(
                case.row(
                    f"place.level.{level.name}.{name}_bytes",
                    10,
                    f"{name.upper()}: bytes per device and step that cross a {level.name}",
                    sent,
                    "bytes",
                    formula="F4.2, F4.4",
                    origins=["mapping.placement", field],
                    record=LINKS,
                    compute=f"bytes sent on the links of this level ({level.name}), by class of collective",
                )
            )
    return told
