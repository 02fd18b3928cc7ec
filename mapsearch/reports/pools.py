"""Two pools as a table: the division, both mappings, the four constraints, publishing in parts.

Contents: pool_lines, price, serving_text.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.text import Text

from mapsearch.pooled import PublishPlan, ServingPlan, TwoPools
from mapsearch.reports.human import amount, count, percent, scaled, seconds
from mapsearch.reports.infeasible import conflict_lines
from mapsearch.reports.layout import Column, flowed, grid, section
from mapsearch.reports.tables import placement_text, sizes_text

WORDS = {
    "train": "the training step itself",
    "supply": "supply: rollout makes batches no faster",
    "publish": "publishing: its time ages the samples or fills the step",
    "queue": "the queue: what waits in it ages",
    "version": "one version per request: switches, and the age of the longest request",
}
CUT = "There may be more conflicts: mapsearch explain ANSWER.json looks for up to ten."
NAMED = 8
"""Outer units that are named one by one."""
UNLIKE = 0.005
"""Share by which a transfer that is routed rank by rank must differ to be named."""
STATUS = {
    "searched": "searched",
    "bound": "cannot be better",
    "training": "no training mapping fits",
    "rollout": "no replica fits, or no sample is young enough",
    "late": "not searched to the end",
}


def pool_lines(found: TwoPools, *, width: int, verbose: bool = False) -> list[Text]:
    """The answer as lines."""
    head = f"{found.status.upper()}: {_headline(found)} in {seconds(found.seconds)}"
    lines = [*flowed(head, width=width, style="bold")]
    names = f"{found.model} · {found.run} · {found.topology} · rollout {found.rollout}"
    lines += flowed(names, width=width)
    if found.steady is None:
        lines += conflict_lines(found, width, verbose, cut=CUT)
    else:
        lines += [*_sides(found, width), *_constraints(found, width), *_publishing(found, width)]
    lines += [line for note in found.notes for line in flowed(f"Note: {note}", width=width, style="dim")]
    if verbose and found.publishing is not None:
        lines += section("Cuts on the way of the weights", grid(_ways(found.publishing), indent=2), width=width)
        words = "Bytes of one version by level: out of a unit of training, into a unit of rollout"
        lines += section(words, grid(_crossing(found.publishing), indent=2), width=width)
    if verbose:
        lines += section("Divisions of the devices", grid(_divisions(found), indent=2), width=width)
    return lines


def _headline(found: TwoPools) -> str:
    if found.steady is None:
        return "no pair of mappings fits any division" if found.status == "infeasible" else "nothing found"
    rate = f"{scaled(found.steady.tokens_per_s, '')} RL tokens/s, a step of {seconds(found.steady.step_s)}"
    space = (
        f"{len(found.divisions)} divisions, {count(found.mappings)} training mappings and {count(found.offers)} ways "
        "to serve"
    )
    return f"{_paid(found)}{rate}, {_proven(found)} {space}"


def _proven(found: TwoPools) -> str:
    if found.status == "optimal":
        return "proven over"
    if found.gap:
        # Rounded up, so that a gap that is left is never told as none.
        return f"best so far, at most {math.ceil(found.gap * 1e3) / 10:.1f} % from the best, of"
    return "best of"


def _paid(found: TwoPools) -> str:
    """What tokens cost, where that is what was looked for."""
    if found.cost is None or found.objective == "tokens":
        return ""
    if found.cost.per_million is not None:
        return f"a price of {price(found.cost.per_million)} per million RL tokens, "
    return f"{price(found.cost.device_hours_per_million)} device-hours per million RL tokens, "


def price(value: float) -> str:
    """A price or device-hours: three digits, and all that are needed below a hundredth."""
    return scaled(value, "") if value >= 0.01 else f"{value:.3g}"


def _sides(found: TwoPools, width: int) -> list[Text]:
    steady, plan, mapping = found.steady, found.serving, found.mapping
    if steady is None or plan is None or mapping is None:
        return []
    units = f" (those of {', '.join(found.training_units)})" if 0 < len(found.training_units) <= NAMED else ""
    training = (
        f"{found.training_devices:,} devices{units} train: {seconds(steady.train_s)}, duty {percent(steady.duty)}"
    )
    serving = (
        f"{found.rollout_devices:,} devices roll out: {serving_text(plan)}, {scaled(plan.tokens_per_s, '')} effective "
        "tokens/s"
    )
    memory = (
        f"HBM {amount(plan.weight_bytes)} weights ({plan.weights}), {amount(plan.cache_bytes)} cache, "
        f"{amount(plan.buffer_bytes)} buffers, of {amount(plan.limit_bytes)}"
    )
    slow = sorted(plan.decode_parts_s.items(), key=lambda item: -item[1])
    parts = ", ".join(f"{name} {seconds(value)}" for name, value in slow if value > 0.0)
    token = f"decode step {seconds(plan.decode_step_s)} ({parts}); longest request {seconds(plan.longest_request_s)}"
    lines = [Text(""), *flowed(training, width=width)]
    lines += flowed(f"{sizes_text(mapping)}: {placement_text(mapping)}", indent=2, width=width)
    lines += flowed(serving, width=width)
    lines += [*flowed(memory, indent=2, width=width), *flowed(token, indent=2, width=width)]
    return [*lines, *(line for told in _unused(found) for line in flowed(told, width=width))]


def _unused(found: TwoPools) -> list[str]:
    """Devices that neither pool uses, and what the others cost."""
    told = [f"{found.idle_devices:,} devices stay unused"] if found.idle_devices else []
    cost = found.cost
    if cost is not None and cost.training_per_hour is not None and cost.rollout_per_hour is not None:
        told.append(
            f"A device-hour costs {price(cost.training_per_hour)} in training and {price(cost.rollout_per_hour)} in "
            f"rollout; {price(cost.device_hours_per_million)} device-hours per million tokens"
        )
    return told


def serving_text(plan: ServingPlan) -> str:
    """How a pool serves: `20 replicas of 128, TP4 DP32 EP128 ETP1, 768 requests each`."""
    some = "replicas" if plan.replicas > 1 else "replica"
    split = f" ({plan.prefill_replicas} of them for prompts)" if plan.prefill_replicas else ""
    return (
        f"{plan.replicas} {some}{split} of {plan.devices_per_replica}, TP{plan.tp} DP{plan.dp} EP{plan.ep} "
        f"ETP{plan.etp}, {plan.sequences_per_replica:,} requests each"
    )


def _constraints(found: TwoPools, width: int) -> list[Text]:
    steady = found.steady
    if steady is None:
        return []
    rows = [
        ("training", steady.train_s, ""),
        ("supply", steady.supply_s, "until rollout has made a batch, switches included"),
        ("age", steady.fresh_s, f"so that no sample is over {steady.versions} versions old"),
        ("publishing", steady.repeated_s, "until a version has arrived before the next"),
    ]
    columns = [
        Column("a step of at least", [name for name, _, _ in rows], left=True),
        Column("", [seconds(value) for _, value, _ in rows]),
        Column("", [words for _, _, words in rows], left=True),
    ]
    binds = f"Binds: {WORDS[steady.binding]}"
    if steady.binding != "train":
        binds += f"; without it alone {seconds(steady.without_binding_s)}"
    age = (
        f"Samples are at most {steady.version_lag:.0f} versions, {seconds(steady.age_s)} and "
        f"{count(steady.token_lag)} trained tokens old"
    )
    lines = [Text(""), *grid(columns)]
    return [*lines, *flowed(binds, width=width, style="bold"), *flowed(age, width=width)]


def _publishing(found: TwoPools, width: int) -> list[Text]:
    plan = found.publishing
    if plan is None:
        return []
    parts = ", ".join(f"{name} {seconds(value)}" for name, value in plan.stages_s.items())
    taken = f"{seconds(plan.time_s)} = {parts}"
    if plan.whole_s is not None:
        taken = f"{parts}; a whole version, in its turn, takes {seconds(plan.whole_s)}"
    text = (
        f"Publishing {_version(plan)} ({plan.path}): {taken}; the busiest training device sends "
        f"{amount(plan.sent_bytes)}, a rollout device receives {amount(plan.received_bytes)}, a rank sends to "
        f"{plan.peers} ranks of a replica; a switch costs {seconds(plan.lost_s)} of rollout"
    )
    moved_s = plan.stages_s["transfer"]
    unlike = plan.routed_s is not None and abs(plan.routed_s - moved_s) > UNLIKE * moved_s
    routed = f" ({seconds(plan.routed_s)} routed rank by rank)" if plan.routed_s is not None and unlike else ""
    way = (
        f"Transfer {seconds(moved_s)}{routed}: {plan.binding_cut} binds; no transfer is shorter than "
        f"{seconds(plan.bound_s)}, for {plan.bound_cut}"
    )
    return [*flowed(text, width=width), *flowed(way, width=width)]


def _version(plan: PublishPlan) -> str:
    """What travels of a version."""
    if plan.delta_bytes is None:
        return amount(plan.volume_bytes)
    return f"{amount(plan.version_bytes)} of {amount(plan.volume_bytes)}, as changes"


def _ways(plan: PublishPlan) -> list[Column]:
    """Every cut on the way of the weights."""
    return [
        Column("cut", [cut.where for cut in plan.cuts], left=True),
        Column("bytes", [amount(cut.bytes) for cut in plan.cuts]),
        Column("time", [seconds(cut.seconds) for cut in plan.cuts]),
    ]


def _crossing(plan: PublishPlan) -> list[Column]:
    """Bytes by level of either side."""
    return [
        Column("side", [one.side for one in plan.levels], left=True),
        Column("level", [one.level for one in plan.levels], left=True),
        Column("units", [f"{one.units:,}" for one in plan.levels]),
        Column("bytes of one", [amount(one.mean_bytes) for one in plan.levels]),
        Column("at most", [amount(one.most_bytes) for one in plan.levels]),
    ]


def _divisions(found: TwoPools) -> list[Column]:
    told = found.divisions
    least: list[float | None] = [one.bound_s for one in told]
    each = [one.per_million for one in told]
    if found.objective != "tokens":
        least = [one.bound_per_million for one in told]
    columns = [
        Column("train", [f"{one.training_devices:,}" for one in told]),
        Column("roll out, at most", [f"{one.rollout_devices:,}" for one in told]),
    ]
    if found.objective == "tokens":
        columns.append(Column("no step below", [_or_dash(seconds, value) for value in least]))
    else:
        name = "price" if found.objective == "cost" else "device-hours"
        columns.append(Column(f"no {name} per M tokens below", [_or_dash(price, value) for value in least]))
        columns.append(Column(name, ["" if value is None else price(value) for value in each]))
    columns.append(Column("step", ["" if one.step_s is None else seconds(one.step_s) for one in told]))
    return [*columns, Column("", [STATUS[one.status] for one in told], left=True)]


def _or_dash(write: Callable[[float], str], value: float | None) -> str:
    return "-" if value is None else write(value)
