"""Two pools as a table: the division, both mappings, the four constraints, publishing in parts.

Contents: pool_lines.
"""

from __future__ import annotations

from rich.text import Text

from mapsearch.pooled import PublishPlan, TwoPools
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
        lines += [line for note in found.notes for line in flowed(f"Note: {note}", width=width, style="dim")]
    else:
        lines += [*_sides(found, width), *_constraints(found, width), *_publishing(found, width)]
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
    rate = scaled(found.steady.tokens_per_s, "")
    proven = "proven over" if found.status == "optimal" else "best so far of"
    return (
        f"{rate} RL tokens/s, a step of {seconds(found.steady.step_s)}, {proven} {len(found.divisions)} divisions, "
        f"{count(found.mappings)} training mappings and {count(found.offers)} ways to serve"
    )


def _sides(found: TwoPools, width: int) -> list[Text]:
    steady, plan, mapping = found.steady, found.serving, found.mapping
    if steady is None or plan is None or mapping is None:
        return []
    units = f" (those of {', '.join(found.training_units)})" if 0 < len(found.training_units) <= NAMED else ""
    training = (
        f"{found.training_devices:,} devices{units} train: {seconds(steady.train_s)}, duty {percent(steady.duty)}"
    )
    some = "replicas" if plan.replicas > 1 else "replica"
    split = f" ({plan.prefill_replicas} of them for prompts)" if plan.prefill_replicas else ""
    serving = (
        f"{found.rollout_devices:,} devices roll out: {plan.replicas} {some}{split} of {plan.devices_per_replica}, "
        f"TP{plan.tp} DP{plan.dp} EP{plan.ep} ETP{plan.etp}, {plan.sequences_per_replica:,} requests each, "
        f"{scaled(plan.tokens_per_s, '')} effective tokens/s"
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
    return [*lines, *flowed(memory, indent=2, width=width), *flowed(token, indent=2, width=width)]


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
    return [
        Column("train", [f"{one.training_devices:,}" for one in told]),
        Column("roll out", [f"{one.rollout_devices:,}" for one in told]),
        Column("no step below", ["-" if one.bound_s is None else seconds(one.bound_s) for one in told]),
        Column("step", ["" if one.step_s is None else seconds(one.step_s) for one in told]),
        Column("", [STATUS[one.status] + (f" ({one.which})" if one.which else "") for one in told], left=True),
    ]
