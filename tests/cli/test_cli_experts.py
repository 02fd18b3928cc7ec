"""`mapsearch experts`: tables that fit, the routing record, the step of a mapping, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from importlib import resources

import numpy as np
import pytest
import yaml

from mapsearch.expert_load import ExpertLoad
from mapsearch.inventories.base import validate
from mapsearch.inventories.run import Routing, Run

MAPPING = "{tp: 4, cp: 8, dp: 128, ep: 16, edp: 256, recompute: full, zero: 3, offload: optimizer}\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def loads(here):
    rng = np.random.default_rng(0)
    tokens = np.floor(rng.pareto(1.5, (2, 3, 4, 16)) * 50) + 1
    np.savez(here / "loads.npz", tokens=tokens, layers=np.array(["3", "4", "5"]))
    return "loads.npz"


def test_the_table_fits_and_says_what_is_proven(mapsearch, monkeypatch, loads):
    for columns in (60, 100, 160):
        monkeypatch.setenv("COLUMNS", str(columns))
        found = mapsearch("experts", loads, "--ranks", 4, "--per-node", 2, "--verbose")
        assert found.code == 0
        assert max(map(len, found.out.splitlines())) <= columns
        assert "no placement has a lighter worst rank" in " ".join(found.out.split())
        assert "off node" in found.out


def test_json_is_typed_and_the_same_each_time(mapsearch, loads):
    first, second = (mapsearch("experts", loads, "--ranks", 4, "--per-node", 2, "-f", "json").out for _ in range(2))
    assert first == second
    load = ExpertLoad.model_validate_json(first)
    assert (load.schema_, load.origin, load.steps, load.sources) == ("mapsearch.expert-load/1", "measured", 2, 4)
    assert [layer.layer for layer in load.layers] == ["3", "4", "5"]
    for layer in load.layers:
        assert sorted(expert for held in layer.placement for expert in held) == list(range(16))
        assert layer.bound <= layer.worst <= layer.lpt
        assert layer.worst <= layer.ranks.max
        assert layer.off_node_proven
    assert load.to_json() == first


def test_every_format(mapsearch, loads):
    rows = list(csv.DictReader(io.StringIO(mapsearch("experts", loads, "--ranks", 4, "-f", "csv").out)))
    assert len(rows) == 3 * 16 and {row["rank"] for row in rows} == {"0", "1", "2", "3"}
    assert "### Capacity" in mapsearch("experts", loads, "--ranks", 4, "-f", "md").out
    assert "<html" in mapsearch("experts", loads, "--ranks", 4, "-f", "html").out


def test_the_routing_record_is_read_by_a_run(mapsearch, here, loads):
    assert mapsearch("experts", loads, "--ranks", 4, "-o", "routing.yaml").code == 0
    record = yaml.safe_load((here / "routing.yaml").read_text())["routing"]
    read = validate(Routing, record, file="routing.yaml")
    load = ExpertLoad.model_validate_json(mapsearch("experts", loads, "--ranks", 4, "-f", "json").out)
    assert read.rank_skew == pytest.approx(load.now.rank_skew, rel=2e-6)
    assert read.rank_skew >= load.now.rank_skew
    assert read.sources["rank_skew"].startswith("measured: loads.npz")
    run = validate(Run, {"sequence_length": 1024, "global_batch": 8, "routing": record}, file="run")
    assert run.routing.pair_skew == read.pair_skew
    assert mapsearch("experts", loads, "--ranks", 4, "--placed", "-o", "routing.yaml").code == 0
    placed = validate(Routing, yaml.safe_load((here / "routing.yaml").read_text())["routing"], file="routing.yaml")
    assert placed.rank_skew < read.rank_skew
    assert placed.capacity_factor == read.capacity_factor


def test_the_step_of_a_mapping_with_the_skew_before_and_after(mapsearch, here):
    (here / "mapping.yaml").write_text(MAPPING)
    found = mapsearch("experts", "--zipf", 0.6, "--layers", 3, "--answer", "mapping.yaml", "-f", "json")
    load = ExpertLoad.model_validate_json(found.out)
    effects = {effect.placement: effect for effect in load.effects}
    assert list(effects) == ["run file", "consecutive", "greedy", "placed"]
    assert effects["run file"].rank_skew == 1.0
    times = [effects[name].step_time_s for name in ("run file", "placed", "greedy", "consecutive")]
    assert times == sorted(times) and times[0] < times[1] < times[3]
    peaks = [effects[name].peak_memory_bytes for name in ("run file", "placed", "greedy", "consecutive")]
    assert peaks == sorted(peaks) and peaks[0] < peaks[3]
    assert load.ranks == 16 and load.experts == 384 and load.origin == "assumed"


def test_copies_cost_the_mapping_memory_and_a_reduction(mapsearch, here):
    (here / "mapping.yaml").write_text(MAPPING)
    asked = ("experts", "--zipf", 0.6, "--layers", 2, "--answer", "mapping.yaml", "-f", "json")
    plain = ExpertLoad.model_validate_json(mapsearch(*asked).out)
    assert plain.copies_cost is None
    costs = {}
    for copies in (16, 64):
        load = ExpertLoad.model_validate_json(mapsearch(*asked, "--copies", copies).out)
        cost = costs[copies] = load.copies_cost
        effects = {effect.placement: effect for effect in load.effects}
        assert cost.per_rank == copies // 16 and cost.fits
        parts = cost.weight_bytes + cost.gradient_bytes + cost.optimizer_bytes
        assert cost.total_bytes == pytest.approx(parts)
        assert cost.peak_bytes == pytest.approx(effects["run file"].peak_memory_bytes + cost.total_bytes)
        assert effects["consecutive"].peak_memory_bytes == pytest.approx(
            next(one for one in plain.effects if one.placement == "consecutive").peak_memory_bytes
        )
        assert effects["placed"].step_time_s > effects["run file"].step_time_s + cost.gradient_s * 0.99
        assert any("copies take" in note for note in load.notes)
    assert costs[64].total_bytes == pytest.approx(4 * costs[16].total_bytes)
    assert costs[64].gradient_s > costs[16].gradient_s > 0.0


def test_copies_that_do_not_fit_are_said(mapsearch, here):
    mapping = MAPPING.replace("zero: 3, offload: optimizer", "zero: 1")
    (here / "mapping.yaml").write_text(mapping)
    found = mapsearch("experts", "--zipf", 0.6, "--layers", 2, "--answer", "mapping.yaml", "--copies", 64)
    assert found.code == 0
    assert "copies do not fit" in " ".join(found.out.split())
    alone = mapsearch("experts", "--zipf", 0.6, "--layers", 2, "--ranks", 16, "--copies", 64)
    assert "name a mapping (--answer)" in " ".join(alone.out.split())


def test_a_placement_of_the_first_half_of_the_steps_on_the_second(mapsearch, here):
    rng = np.random.default_rng(3)
    steady = np.floor(rng.pareto(1.5, (1, 2, 16)) * 500) + 1
    drifted = np.concatenate([np.repeat(steady, 4, axis=0), np.repeat(steady[:, :, ::-1], 4, axis=0)])
    held = {}
    for name, tokens in (("steady", np.repeat(steady, 8, axis=0)), ("drifted", drifted)):
        np.savez(here / f"{name}.npz", tokens=tokens)
        load = ExpertLoad.model_validate_json(mapsearch("experts", f"{name}.npz", "--ranks", 4, "-f", "json").out)
        held[name] = load.held_out
        assert load.held_out.steps == 4
    assert held["steady"].early == pytest.approx(held["steady"].late) and held["steady"].early < held["steady"].now
    assert held["drifted"].early > held["drifted"].late
    assert "first half of the steps" in mapsearch("experts", "drifted.npz", "--ranks", 4).out


def test_loads_before_and_after_are_drawn(mapsearch, here, loads):
    assert mapsearch("experts", loads, "--ranks", 4, "--per-node", 2, "-o", "x.svg").code == 0
    drawn = (here / "x.svg").read_text()
    assert "Worst rank over the mean" in drawn and "leaves its node" in drawn and "as they stand" in drawn
    assert mapsearch("experts", loads, "--ranks", 4, "-o", "x.html").code == 0
    assert "<svg" in (here / "x.html").read_text()


def test_a_run_takes_the_loads_for_every_ep(mapsearch, here):
    np.savez(here / "router.npz", tokens=np.floor(np.random.default_rng(0).pareto(1.2, (2, 384)) * 100) + 1)
    built_in = resources.files("mapsearch.inventories") / "catalogue" / "runs" / "long-context-128k.yaml"
    plain = yaml.safe_load(built_in.read_text())
    plain["routing"] = {"loads": "router.npz"}
    (here / "run.yaml").write_text(yaml.safe_dump(plain))
    (here / "mapping.yaml").write_text(MAPPING)
    even = json.loads(mapsearch("check", "mapping.yaml", "-f", "json").out)
    skewed = json.loads(mapsearch("check", "mapping.yaml", "--run", "run.yaml", "-f", "json").out)
    assert skewed["mapping"]["step_time_s"] > even["mapping"]["step_time_s"]
    refused = mapsearch("check", "mapping.yaml", "--run", "run.yaml", "--model", "deepseek-v3")
    assert refused.code == 2 and "384 experts" in refused.err and refused.err.count("\n") == 1


def test_synthetic_loads_take_their_shape_from_the_model(mapsearch, here):
    found = mapsearch(
        "experts",
        "--dirichlet",
        2,
        "--ranks",
        32,
        "--model",
        "deepseek-v3",
        "--per-node",
        8,
        "--groups",
        8,
        "-f",
        "json",
    )
    load = ExpertLoad.model_validate_json(found.out)
    assert (load.experts, load.layer_count, load.groups, load.nodes) == (256, 58, 8, 4)
    assert load.by_expert.skew == pytest.approx(2.0, rel=0.02)
    for layer in load.layers:
        for node in range(4):
            held = layer.placement[8 * node : 8 * node + 8]
            assert len({expert // 32 for rank in held for expert in rank}) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["LOADS", "--zipf"]),
        (["--zipf", "1"], ["--ranks"]),
        (["--zipf", "1", "--dirichlet", "2", "--ranks", "8"], ["one source"]),
        (["--zipf", "-1", "--ranks", "8"], ["--zipf", "0 to 20"]),
        (["--zipf", "nan", "--ranks", "8"], ["--zipf"]),
        (["--dirichlet", "30", "--ranks", "8"], ["--dirichlet", "between 1 and 24"]),
        (["--zipf", "1", "--ranks", "7"], ["--ranks", "384", "7"]),
        (["--zipf", "1", "--ranks", "8", "--per-node", "3"], ["--per-node", "3"]),
        (["--zipf", "1", "--ranks", "8", "--per-node", "4", "--groups", "3"], ["--groups", "3"]),
        (["--zipf", "1", "--ranks", "8", "--copies", "3"], ["--copies", "multiple of 8"]),
        (["--zipf", "1", "--ranks", "8", "--copies", "8000"], ["--copies", "2,688"]),
        (["--zipf", "1", "--ranks", "8", "--model", "llama-3.1-8b"], ["llama", "no experts"]),
        (["--zipf", "1", "--ranks", "8", "--top-k", "500"], ["--top-k", "500"]),
        (["--zipf", "1", "--answer", "mapping.yaml", "--ranks", "8"], ["--ranks", "EP 16"]),
        (["--zipf", "1", "--answer", "mapping.yaml", "--experts", "64"], ["64 experts", "384"]),
        (["missing.csv", "--ranks", "8"], ["missing.csv", "no such file"]),
        (["missing.txt", "--ranks", "8"], [".txt", ".npz"]),
        (["loads.npz", "--ranks", "8"], ["loads.npz", "4 sources", "8 ranks"]),
    ],
)
def test_what_is_refused(mapsearch, here, loads, arguments, words):
    (here / "mapping.yaml").write_text(MAPPING)
    found = mapsearch("experts", *arguments)
    assert found.code == 2
    assert found.err.count("\n") == 1 and all(word in found.err for word in words), found.err


def test_a_schema_is_printed(mapsearch):
    assert "placed_off_node" in json.loads(mapsearch("schema", "expert-load").out)["$defs"]["LayerLoad"]["properties"]
