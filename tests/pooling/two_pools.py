"""Two pools small enough that loops can go through every division, training mapping and way to serve."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import bruteforce
from tiny_cases import tiny_model, tiny_profile, tiny_run

from mapsearch.costs.estimate import layout_trouble, number, point_of
from mapsearch.inventories.base import validate
from mapsearch.inventories.rollout import Rollout
from mapsearch.pooling.problem import Pools, pace_of, read_pools
from mapsearch.solver.problem import problem_of
from mapsearch.solver.ranking import margins, pair_view
from mapsearch.topologies.spec import Topology

TINY_ROLLOUT: dict[str, Any] = {
    "name": "tiny",
    "prompt_tokens": {"quantiles": {0: 16, 0.5: 64, 1: 128}},
    "response_tokens": {"quantiles": {0: 16, 0.5: 128, 1: 384}},
    "concurrency": 64,
    "filter_yield": 0.8,
    "versions": 4,
    "queue": {"held_batches": 0.5},
    "serving": {"tp": [1, 2], "ep": [1, 2, 4], "dp": [1, 2, 4], "weights": "fp8-block", "prefill_chunk": 128},
    "publishing": {"switch": "1 ms", "every": 1},
}


def tiny_rollout(**changes: Any) -> Rollout:
    return validate(Rollout, {**TINY_ROLLOUT, **changes}, file="tiny rollout")


def tiny_cluster(sizes: tuple[int, ...] = (2, 4), *, hbm_mb: float = 64.0, outer: str = "switch") -> Topology:
    names = ("board", "rack", "pod")
    levels = [
        {
            "name": names[j],
            "kind": outer if j == len(sizes) - 1 else "switch",
            "size": size,
            "bandwidth": f"{100 / 4**j} GB/s",
            "latency": f"{1 + j} us",
            "high_bandwidth": j == 0,
        }
        for j, size in enumerate(sizes)
    ]
    peak = {"bf16": "10 TFLOP/s", "fp8": "20 TFLOP/s"}
    device = {"name": "tiny device", "hbm": f"{hbm_mb} MB", "hbm_bandwidth": "1 TB/s", "peak": peak}
    return validate(Topology, {"name": "tiny", "device": device, "levels": levels}, file="tiny cluster")


def tiny_pools(**parts: Any) -> Pools:
    given = {
        "model": tiny_model(),
        "run": tiny_run(micro_batch=[1], vpp=[1], schedule=["1f1b"]),
        "topology": tiny_cluster(),
        "rollout": tiny_rollout(),
        "profile": tiny_profile(),
        "devices": None,
    }
    return read_pools(**{**given, **parts})


def drawn(seed: int) -> Pools:
    """A random question; over many seeds every constraint binds in some, and in some nothing fits."""
    dice = random.Random(seed)
    pick = dice.choice
    every = pick([1, 1, 2, 3])
    low, middle = pick([8, 16, 64]), pick([64, 128, 256])
    rollout = tiny_rollout(
        response_tokens={"quantiles": {0: low, 0.5: middle, 1: pick([middle, 2 * middle, 8 * middle])}},
        concurrency=pick([2, 8, 64, 4096]),
        filter_yield=pick([0.2, 0.7, 1.0]),
        versions=pick([1, 4, 4, 6, 64]),
        queue={"held_batches": pick([0.0, 0.5, 3.0, 3.5]), "most_batches": pick([4.0, 4.5, 8.0])},
        pool={"link": {"bandwidth": pick(["1 GB/s", "100 MB/s", "20 MB/s"])}} if pick([True, False]) else {},
        serving={
            **TINY_ROLLOUT["serving"],
            "weights": pick(["bf16", "fp8-block", "mxfp8"]),
            "prefill_decode_split": pick([False, False, True]),
        },
        publishing={
            "switch": pick(["0 s", "1 ms", "100 ms"]),
            "every": every,
            "path": pick(["push", "tree", "all", "all"]),
            "source_devices": pick([1, 2, 4]),
            "pipelined": pick([True, False]),
            "chunks": pick([1, 8]),
            "in_flight": pick(["drain", "restart", "side-by-side"]),
        },
    )
    run = tiny_run(
        sequence_length=pick([256, 1024]),
        global_batch=pick([4, 8, 16]),
        micro_batch=[1],
        vpp=[1],
        schedule=["1f1b"],
        recompute=[pick(["none", "full"])],
    )
    sizes = pick([(2, 2), (2, 3), (1, 4), (2, 4), (4,), (3,)])
    cluster = tiny_cluster(sizes, hbm_mb=pick([16.0, 64.0, 256.0, 256.0]), outer=pick(["switch", "switch", "ring"]))
    layers = pick([2, 4, 5])
    return tiny_pools(model=tiny_model(layers=layers), run=run, topology=cluster, rollout=rollout)


def plain_best(pools: Pools, training_price: float = 0.0, rollout_price: float = 0.0) -> float | None:
    """The shortest step of all triples of division, training mapping and way to serve, each paced by itself; with
    prices the least of step times what the devices of both sides take per second."""
    best: float | None = None
    for part, services in plain_divisions(pools):
        offered = [(facts, pools.server.offers(facts)) for facts in services]
        for train_s, mapping in _feasible(part.training) if any(offers for _, offers in offered) else ():
            for facts, offers in offered:
                devices = part.training.fabric.devices, facts.fabric.devices
                paid = training_price * devices[0] + rollout_price * devices[1] or 1.0
                for offer in offers:
                    value = paid * pace_of(pools, replace(part, serving=facts), offer, train_s, mapping).step_s
                    if value < float("inf") and (best is None or value < best):
                        best = value
    return best


def plain_divisions(pools: Pools) -> Any:
    """Every number of outer units that train, with every number of the others that serves; clusters of their own as a
    whole, and unlike units as the question divides them."""
    if pools.own is not None or pools.unlike:
        yield from ((part, [part.serving]) for part in pools.parts())
        return
    for trains in range(1, pools.units):
        serves = range(1, pools.units - trains + 1)
        yield pools.part(trains), [pools.part(pools.units - units).serving for units in serves]


def _feasible(facts: Any) -> Any:
    """Every feasible mapping, one by one, with its step; of equal ones for the pools one is enough."""
    relations = problem_of(facts).relations
    pair = [relation for relation in relations if relation.side == "pair"]
    kept: dict[tuple[int, tuple[int, ...]], tuple[float, Any]] = {}
    for mapping in bruteforce.mappings(facts):
        point = point_of(mapping, facts)
        alone = margins(point, relations, sides=("cell", "attention", "expert"))
        if layout_trouble(point) or any(margin.margin < 0 for margin in alone):
            continue
        view = pair_view(point)
        if all(number(relation.demand(view)) <= number(relation.limit(view)) for relation in pair):
            devices = mapping.tp * mapping.cp * mapping.dp * mapping.pp
            key = (devices, (mapping.pp, *mapping.layout))  # all that publishing sees of a mapping
            if key not in kept or view.step_time_s < kept[key][0]:
                kept[key] = (view.step_time_s, mapping)
    return kept.values()
