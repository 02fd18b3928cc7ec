"""Legality of a case: the relations of the search and of frameworks, on the facts that the case gives.

Contents: findings, stand_in.

A fact that is missing is stood in for by a number that divides evenly, so that only what is said can break a rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mapsearch.calibration.shipped import profile_named
from mapsearch.constraints import divisibility
from mapsearch.constraints.framework import JOINT, RULES
from mapsearch.constraints.rules import first
from mapsearch.costs.estimate import point_of
from mapsearch.costs.views import Facts
from mapsearch.errors import MapsearchError
from mapsearch.frameworks import RELEASES, WHOSE, named
from mapsearch.inventories.base import validate
from mapsearch.inventories.model import Model
from mapsearch.judging import grids
from mapsearch.judging.finding import Finding
from mapsearch.judging.trial import Trial

REDUNDANT = {"megatron_sequence_parallel"}
"""Rules that a framework words as one about speed: what they forbid runs, and sends every token TP times."""


def findings(trial: Trial) -> list[Finding]:
    """Everything that forbids the launch: what splits, then devices and padding, then the framework."""
    facts, views = _views(trial)
    grid = [one for rule in grids.RULES if (one := rule(trial)) is not None]
    rules = [] if trial.task == "inference" else list(_framework(trial, facts.model, views))
    return [*_relations(trial, views), *grid, *rules]


def stand_in(trial: Trial) -> Model:
    """The case's model, else one of its numbers in which all that is not said divides evenly."""
    if trial.shape.model is not None and trial.task != "conversion":
        return trial.shape.model
    said, degrees = trial.shape.said, trial.degrees
    ranks = degrees["tp"] * degrees["cp"]
    heads = said.get("heads") or math.lcm(ranks, said.get("kv_heads", 1))
    kv_heads = said.get("kv_heads") or heads
    shape: dict[str, Any] = {
        "name": "case",
        "layers": said.get("layers") or 64 * degrees["pp"] * degrees["vpp"],
        "hidden": said.get("hidden") or 128 * ranks,
        "heads": heads if heads % kv_heads == 0 else kv_heads,
        "kv_heads": kv_heads,
        "head_dim": 128,
        "vocab": said.get("vocab") or 128 * ranks,
        "ffn": said.get("ffn") or 128 * ranks,
    }
    redundant = trial.case.mapping.sequence_parallel is False and trial.shape.has_experts is None
    if said.get("experts") or degrees["ep"] > 1 or redundant:
        experts = said.get("experts") or degrees["ep"]
        shape["moe"] = {
            "experts": experts,
            "top_k": min(said.get("topk", 1), experts),
            "expert_ffn": 128 * degrees["etp"],
        }
    return validate(Model, shape, file="the case's model")


def _views(trial: Trial) -> tuple[Facts, dict[str, Any]]:
    """The mapping as relations see it, on as many devices as it needs."""
    assert trial.mapping is not None and trial.run is not None
    gpus = trial.mapping.devices
    fabric = trial.hardware.fabric(gpus)
    facts = Facts(stand_in(trial), trial.run, fabric, profile_named("h100@unfitted"))
    try:
        point = point_of(trial.mapping, facts)
    except MapsearchError:
        flat = replace(fabric, levels=(replace(fabric.levels[0], size=gpus),), cores=(), site=None)
        facts = replace(facts, fabric=flat)
        point = point_of(trial.mapping, facts)
    return facts, {"cell": point.cell, "attention": point.attention, "expert": point.expert}


def _relations(trial: Trial, views: dict[str, Any]) -> Iterator[Finding]:
    for relation in divisibility.RELATIONS:
        if not _about(trial, relation.name):
            continue
        view = views[relation.side]
        demand, limit = first(relation.demand(view)), first(relation.limit(view))
        if demand > limit:
            yield Finding("infeasible", relation.name, relation.sentence(view, demand, limit))


def _framework(trial: Trial, model: Model, views: dict[str, Any]) -> Iterator[Finding]:
    """Rules of the framework: those of the release it names, else those that most known releases have."""
    assert trial.mapping is not None
    name, release = named(trial.launcher.framework)
    known = [release] if trial.named_release else list(RELEASES[name])
    broken: list[tuple[Any, str, str]] = []
    for rule in RULES[name]:
        if _about(trial, rule.relation.name):
            view = views[rule.relation.side]
            demand, limit = first(rule.relation.demand(view)), first(rule.relation.limit(view))
            if demand > limit:
                broken.append((rule, rule.relation.name, rule.relation.sentence(view, demand, limit)))
    for joint in JOINT.get(name, ()):
        reason = joint.broken(trial.mapping, model)
        if reason:
            broken.append((joint, joint.name, reason))
    for rule, relation, sentence in broken:
        refusing = [one for one in known if rule.holds_in(one)]
        if relation in REDUNDANT and refusing:
            yield Finding("slow", relation, f"{sentence}: every rank of a TP group sends all of its tokens", name)
        elif 2 * len(refusing) > len(known):
            who = rule.releases(name) if not trial.named_release else f"{WHOSE[name]} {release}"
            yield Finding("infeasible", relation, f"legal on hardware; {who} refuses it: {sentence}", name)
        elif refusing:
            yield Finding("note", relation, f"legal on hardware; {rule.releases(name)} refuses it: {sentence}", name)


def _about(trial: Trial, relation: str) -> bool:
    """Whether the case says what a rule is about; a default of ours breaks no rule."""
    run, mapping = trial.case.run, trial.case.mapping
    sized = run.global_batch is not None and trial.gpus is not None
    said: tuple[tuple[str, bool], ...] = (
        ("batch", sized and trial.has_mapping and _batch_said(trial)),
        ("sequence_divides", run.seq is not None and not run.packing),
        ("interleave", run.microbatches is not None or sized),
        ("zero", mapping.zero is not None),
        ("schedule", False),
        ("sequence_parallel", mapping.sequence_parallel is not None),
        ("offload_optimizer", run.optimizer_cpu_offload is not None),
        # Stages are judged as a launch splits them (`grids.even_stages`).
        ("even_stages", False),
        ("even_chunks", False),
        ("overlap", False),
        ("layers_fill", False),
    )
    return next((given for word, given in said if word in relation), True)


def _batch_said(trial: Trial) -> bool:
    run = trial.case.run
    return any(given is not None for given in (run.micro_batch, run.local_batch, run.per_device_batch))
