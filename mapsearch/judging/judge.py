"""The verdict on a case: legality, host memory, device memory, speed, in this order; missing facts tried.

Contents: judge, read_case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from mapsearch import documents
from mapsearch.constraints.capacity import bytes_text
from mapsearch.errors import InputError
from mapsearch.inventories.base import validate
from mapsearch.inventories.case import Case
from mapsearch.judging import legal, memory, speed
from mapsearch.judging.finding import Finding
from mapsearch.judging.trial import Trial, trial_of
from mapsearch.verdict import Absent, Found, Tried, Verdict, Word

VALUES: dict[str, tuple[Any, ...]] = {
    "run.recompute": ("none", "full"),
    "run.micro_batch": (1, 2, 4, 8),
    "run.seq": (2048, 4096, 8192, 16384, 32768, 131072),
    "hardware.mem_gb": (40, 80, 141),
}
"""Legal values tried for a fact that is missing; devices and mappings are made from the degrees."""
ESSENTIAL = ("hardware.mem_gb", "hardware.gpus", "mapping", "mapping.pp")
"""Facts without which there is no memory to judge: tried together."""
MOST = 400
"""Combinations tried at most."""
UNTRAINED_SKEW = 4.0
"""Largest over mean load of expert ranks while the router is untrained (assumed; up to 14 reported)."""
EARLY = ("cold", "early", "first")


@dataclass(frozen=True)
class _Judged:
    word: Word
    deciding: Finding
    found: tuple[Finding, ...]


def read_case(name: str) -> Case:
    """A case by path. Raises InputError."""
    return validate(Case, documents.load(name), file=name)


def judge(case: Case, *, name: str = "case", tries: bool = True) -> Verdict:
    """The verdict on a case, from its model, hardware, mapping and run alone; `tries` goes through missing facts.

    Raises InputError for a framework that is not known.
    """
    facts = case.facts
    try:
        trial = trial_of(facts)
    except ValueError as problem:
        raise InputError(str(problem), file=name, field="run.framework") from None
    judged = _judged(trial)
    tried = list(_tried(facts, trial, judged)) if tries else []
    if judged.word == "undetermined":
        judged = _unanimous(judged, tried)
    return Verdict(
        case=name,
        verdict=judged.word,
        relation=judged.deciding.relation,
        because=judged.deciding.sentence,
        relations=_at_stake(judged),
        firm=all(one.verdict == judged.word for one in tried) and judged.word != "undetermined",
        found=[Found(kind=f.kind, relation=f.relation, origin=f.origin, sentence=f.sentence) for f in judged.found],
        missing=[Absent(fact=one.fact, taken=one.taken, may_be=one.may_be) for one in trial.missing],
        tried=tried,
        notes=[*trial.notes, *_unread(facts)],
    )


def _judged(trial: Trial, *, quick: bool = False) -> _Judged:
    """The verdict with what was taken for the missing facts; `quick` leaves speed out."""
    found = legal.findings(trial)
    host, estimate = memory.host_finding(trial), memory.device_estimate(trial)
    held = _memory(trial, estimate) if estimate is not None else []
    found += [*([host] if host is not None else []), *held]
    stop = _first(found, "infeasible") or _first(found, "out of memory")
    batch = _batch_decides(trial, stop)
    if batch is not None:
        return _Judged("undetermined", batch, tuple(found))
    if stop is not None:
        return _Judged(stop.kind, stop, tuple(found))  # type: ignore[arg-type]
    if host is not None and host.relation.endswith("?"):
        return _Judged("undetermined", Finding("note", "hardware.host_gb", host.sentence), tuple(found))
    if not quick:
        found += speed.findings(trial, estimate)
    slow = _first(found, "slow")
    if slow is not None:
        return _Judged("slow", slow, tuple(found))
    if estimate is not None:
        return _Judged("feasible", held[0], tuple(found))
    return _without_memory(trial, found)


def _batch_decides(trial: Trial, stop: Finding | None) -> Finding | None:
    """Out of memory with the launcher's default microbatch, which the case does not give, but not with one sequence."""
    taken = any(one.fact == "run.micro_batch" for one in trial.missing)
    if (
        stop is None
        or stop.kind != "out of memory"
        or not taken
        or trial.mapping is None
        or trial.mapping.micro_batch == 1
    ):
        return None
    least = memory.device_estimate(trial, micro_batch=1)
    if least is None or least.needed_bytes > least.offered_bytes:
        return None
    said = f"with {trial.mapping.micro_batch} sequences per microbatch, which is not given, {stop.sentence}; one fits"
    return Finding("note", "run.micro_batch", said)


def _first(found: list[Finding], kind: str) -> Finding | None:
    return next((one for one in found if one.kind == kind), None)


def _without_memory(trial: Trial, found: list[Finding]) -> _Judged:
    """Legal, but memory cannot be judged: feasible only where legality is all that the case asks."""
    refused = next((one for one in found if one.kind == "note" and one.origin != "physics"), None)
    if refused is not None and trial.shape.model is None and trial.hardware.memory_bytes is None:
        return _Judged("feasible", refused, tuple(found))
    lacking = trial.missing_names()
    fact = lacking[0] if lacking else "hardware.gpu"
    others = f", and {', '.join(lacking[1:])}" if lacking[1:] else ""
    said = f"{fact} is not given{others}: what is said breaks no rule, and memory depends on it"
    return _Judged("undetermined", Finding("note", fact, said), tuple(found))


def _memory(trial: Trial, estimate: memory.Estimate) -> list[Finding]:
    """Memory with even routing; with an untrained router where the case is about the first steps."""
    held = memory.findings(trial, estimate)
    early = any(word in str(trial.case.run.phase or "").lower() for word in EARLY)
    if not early or held[0].kind == "out of memory" or not trial.shape.has_experts or trial.run is None:
        return held
    routing = trial.run.routing.replaced(rank_skew=UNTRAINED_SKEW)
    skewed = memory.device_estimate(trial, routing=routing)
    if skewed is None or skewed.needed_bytes <= skewed.offered_bytes:
        return held
    said = (
        f"{held[0].sentence}; with an untrained router one rank may receive {UNTRAINED_SKEW:g} times the mean load, "
        f"and then needs {bytes_text(skewed.needed_bytes)}"
    )
    return [Finding("out of memory", "routing_imbalance", said)]


def _at_stake(judged: _Judged) -> list[str]:
    """Relations that are broken; of a feasible case its memory and what another release or rule would refuse."""
    if judged.word in ("infeasible", "out of memory", "slow"):
        names = [one.relation for one in judged.found if one.kind == judged.word]
    else:
        names = [judged.deciding.relation, *(one.relation for one in judged.found if one.kind == "note")]
    return list(dict.fromkeys([judged.deciding.relation, *names]))


# --- missing facts -------------------------------------------------------------------------------------------------


def _changed(case: Case, fact: str, value: Any) -> Case:
    """The case with one fact given."""
    part, _, key = fact.partition(".")
    if part == "mapping" and not key:
        return case.model_copy(update={"mapping": case.mapping.model_copy(update=value)})
    record = getattr(case, part)
    return case.model_copy(update={part: record.model_copy(update={key: value})})


def _values(trial: Trial, fact: str) -> tuple[Any, ...]:
    if fact == "hardware.gpus":
        least = trial.degrees["tp"] * trial.degrees["cp"] * trial.degrees["pp"]
        experts = trial.degrees["etp"] * trial.degrees["ep"] * trial.degrees["pp"]
        floor = max(8, least, experts)
        return tuple(floor * times for times in (1, 2, 4, 8, 16))
    if fact == "mapping":
        return tuple(_mappings(trial))
    if fact == "mapping.pp":
        return (4, 8, 16)
    if fact == "mapping.etp":
        return (1, trial.degrees["tp"])
    return VALUES.get(fact, ())


def _mappings(trial: Trial) -> Iterator[dict[str, int]]:
    """Degrees in powers of two that divide the devices, TP inside a node."""
    for tp, pp, ep in product((1, 2, 4, 8), (1, 2, 4, 8), (1, 8, 32)):
        if ep > 1 and not trial.shape.has_experts:
            continue
        if trial.gpus is None or (trial.gpus % (tp * pp) == 0 and trial.gpus % (ep * pp) == 0):
            yield {"tp": tp, "pp": pp, "ep": ep, "etp": 1}


def _tried(case: Case, trial: Trial, judged: _Judged) -> Iterator[Tried]:
    """The verdict at legal values of the missing facts: essential ones together, the others one by one."""
    if judged.word == "infeasible" or trial.shape.model is None:
        return
    essential = [fact for fact in trial.missing_names() if fact in ESSENTIAL]
    if essential and judged.word == "undetermined":
        axes = [[(fact, value) for value in _values(trial, fact)] for fact in essential]
        for values in islice(product(*axes), MOST):
            yield _at(case, values)
        return
    for fact in (one.fact for one in trial.missing if one.taken):
        for value in _values(trial, fact):
            yield _at(case, ((fact, value),))


def _at(case: Case, values: tuple[tuple[str, Any], ...]) -> Tried:
    changed = case
    for fact, value in values:
        changed = _changed(changed, fact, value)
    word = _judged(trial_of(changed), quick=True).word
    return Tried(
        fact=" and ".join(fact for fact, _ in values), value=" and ".join(_said(v) for _, v in values), verdict=word
    )


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{axis.upper()}{size}" for axis, size in value.items() if size > 1) or "DP only"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _unanimous(judged: _Judged, tried: list[Tried]) -> _Judged:
    """The verdict that all legal values share, else undetermined with the counts."""
    words = [one.verdict for one in tried if one.verdict != "infeasible"]
    if not words:
        return judged
    if len(set(words)) == 1 and words[0] != "undetermined" and len(words) < MOST:
        said = f"{words[0]} at every legal value of {tried[0].fact} that was tried ({len(words)})"
        return _Judged(words[0], Finding("note", "hbm", said), judged.found)
    counts = ", ".join(f"{word} at {words.count(word)}" for word in dict.fromkeys(words))
    decides = judged.deciding
    said = f"{decides.sentence}; of {len(words)} legal values tried: {counts}"
    return _Judged("undetermined", Finding("note", decides.relation, said), judged.found)


def _unread(case: Case) -> list[str]:
    """Keys that the judgement does not know."""
    parts = {"model": case.model, "hardware": case.hardware, "mapping": case.mapping, "run": case.run}
    keys = [f"{name}.{key}" for name, part in parts.items() for key in part.unread]
    return [f"not read: {', '.join(keys)}"] if keys else []
