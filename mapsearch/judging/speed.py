"""Whether a run that fits is slow, and by what: a group across a slow level, exposed exchange, bubble, launches.

Contents: findings, crossing.
"""

from __future__ import annotations

from mapsearch.api import solve
from mapsearch.costs.estimate import estimate_point
from mapsearch.judging.finding import Finding
from mapsearch.judging.memory import Estimate, profile_for
from mapsearch.judging.trial import Trial

EXPOSED, BUBBLE, HOST = 0.5, 0.4, 0.4
"""Shares of a step from which a cause is called slow by itself."""
REMARK = 0.25
"""Share from which it is remarked."""
SLACK, FASTER = 0.3, 1.25
"""A run that fills less of its device than this is compared with other mappings; slow when one is so many times
faster."""
SECONDS = 30.0
MESSAGES = {"tp": "TP", "ep": "the expert exchange", "cp": "CP", "dp": "data parallelism", "pp": "pipeline sends"}
RELATIONS = {"tp": "tp_exposed", "ep": "ep_exposed", "cp": "cp_exposed", "dp": "dp_exposed", "pp": "pp_exposed"}


def crossing(trial: Trial) -> list[Finding]:
    """Groups that talk in every layer and are larger than a high-bandwidth domain."""
    domain, found = trial.hardware.domain, []
    spans = {"tp": trial.degrees["tp"], "ep": trial.degrees["ep"] * trial.degrees["etp"]}
    for axis, ranks in spans.items():
        if trial.degrees[axis] > 1 and ranks > domain and (trial.gpus is None or trial.gpus > domain):
            said = (
                f"{axis.upper()} {trial.degrees[axis]} spans {ranks} ranks, more than the {domain} of a high-bandwidth "
                f"domain: a device's link is {trial.hardware.slowdown:.3g} times slower outside it"
            )
            found.append(Finding("note", f"{axis}_crosses", said))
    return found


def findings(trial: Trial, estimate: Estimate | None) -> list[Finding]:
    """Causes of a slow run; notes where they are small."""
    across = crossing(trial)
    found = _by_launcher(trial)
    if trial.shape.model is None and trial.hardware.kind is not None:
        return [*found, *(Finding("slow", one.relation, one.sentence) for one in across)]
    if estimate is None or estimate.point is None or trial.hardware.kind is None:
        return [*found, *across]
    told = estimate_point(estimate.point)
    names = {one.relation for one in across}
    for axis, seconds in told.exposed_s.items():
        share = seconds / told.step_time_s
        crosses = next((one for one in across if one.relation == f"{axis}_crosses"), None)
        if share < REMARK or axis in ("dp", "pp"):
            continue
        relation = crosses.relation if crosses else RELATIONS[axis]
        why = f"; {crosses.sentence}" if crosses else ""
        kind = "slow" if share >= EXPOSED else "note"
        names.discard(relation)
        found.append(Finding(kind, relation, f"{MESSAGES[axis]} exposes {100 * share:.0f} % of the step{why}"))  # type: ignore[arg-type]
    for part, limit, relation in (("bubble", BUBBLE, "bubble"), ("host", HOST, "launch_bound")):
        share = told.breakdown_s.get(part, 0.0) / told.step_time_s
        if share >= REMARK:
            # Captured graphs take the host away, and few reports say whether they were used.
            known = part == "bubble" or trial.case.run.cuda_graph is not None
            kind = "slow" if share >= limit and known else "note"
            what = "the pipeline's bubble" if part == "bubble" else "waiting for the host to launch kernels"
            found.append(Finding(kind, relation, f"{what} is {100 * share:.0f} % of the step"))  # type: ignore[arg-type]
    found += [one for one in across if one.relation in names]
    if estimate.share < SLACK and not any(one.kind == "slow" for one in found):
        found += _against_others(trial, estimate)
    return found


def _by_launcher(trial: Trial) -> list[Finding]:
    if not trial.launcher.reduces_experts or trial.degrees["ep"] == 1:
        return []
    ep = trial.degrees["ep"]
    return [
        Finding(
            "slow",
            "ep_replicates",
            f"this EP keeps all tokens on each of its {ep} ranks and all-reduces the experts' output instead of an "
            f"all-to-all: every rank routes {ep} times the tokens",
            "launcher",
        )
    ]


def _against_others(trial: Trial, estimate: Estimate) -> list[Finding]:
    """The fastest other mapping of the same run, when memory is no matter."""
    assert trial.run is not None and trial.shape.model is not None and trial.gpus is not None
    assert estimate.point is not None
    run = trial.run.model_copy(
        update={"framework": "none", "recompute": list(dict.fromkeys([*trial.run.recompute, 0]))}
    )
    fabric = trial.hardware.fabric(trial.gpus)
    answer = solve(trial.shape.model, run, fabric, profile=profile_for(trial), top=1, proof="none")
    if not answer.mappings:
        return []
    best, told = answer.mappings[0], estimate_point(estimate.point)
    gain = told.step_time_s / best.step_time_s
    if gain < FASTER:
        return []
    axis = max(told.exposed_s, key=lambda name: told.exposed_s[name])
    if told.exposed_s[axis] < REMARK * told.step_time_s:
        return []
    sizes = ", ".join(f"{name.upper()} {size}" for name, size in best.sizes.items() if size > 1 and name in _SIZES)
    share = told.exposed_s[axis] / told.step_time_s
    return [
        Finding(
            "slow",
            RELATIONS[axis],
            f"{MESSAGES[axis]} exposes {100 * share:.0f} % of the step, and {sizes or 'one device per replica'} on the "
            f"same devices is {gain:.2f} times faster",
        )
    ]


_SIZES = ("tp", "cp", "dp", "pp", "ep", "etp")
