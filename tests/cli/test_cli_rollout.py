"""`mapsearch rollout`: the default question, what is refused, and manifests written and checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mapsearch import documents
from mapsearch.cli.main import main
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.rollout import Rollout

SMALL = ["rollout", "--topology", "hgx-h100", "--devices", "64", "--model", "mixtral-8x7b", "--proof", "none"]


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    """A small question, solved once; lengths are cut so that no version is too old."""
    folder = tmp_path_factory.mktemp("rollout")
    file = folder / "short.yaml"
    given = json.loads(load_inventory(Rollout, "default").model_dump_json(exclude_defaults=True))
    given["response_tokens"] = {"quantiles": {"0": 64, "1": 4096}}
    file.write_text(documents.dump(given))
    out = folder / "answer.json"
    options = ["--rollout", str(file), "--training", str(_run(folder)), "--format", "json", "-o", str(out)]
    assert main([*SMALL, *options]) == 0
    return out


def _run(folder: Path) -> Path:
    text = "name: short\nsequence_length: 8192\nglobal_batch: 512\nframework: none\nmicro_batch: [1]\nzero: [1, 3]\n"
    file = folder / "run.yaml"
    file.write_text(text)
    return file


def test_the_answer_is_a_document_that_holds(answer):
    data = json.loads(answer.read_text())
    assert data["schema"] == "mapsearch.rollout/1"
    assert data["status"] == "optimal"
    steady = data["steady"]
    assert steady["step_s"] == max(steady[name] for name in ("train_s", "supply_s", "fresh_s", "repeated_s"))
    assert steady["binding"] in ("train", "supply", "publish", "queue", "version")
    assert data["training_devices"] + data["rollout_devices"] == 64


def test_same_input_same_answer(answer, capsys):
    options = ["--rollout", str(answer.parent / "short.yaml"), "--training", str(answer.parent / "run.yaml")]
    assert main([*SMALL, *options, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(answer.read_text())


def test_the_table_names_both_sides_and_what_binds(answer, capsys):
    options = ["--rollout", str(answer.parent / "short.yaml"), "--training", str(answer.parent / "run.yaml")]
    assert main([*SMALL, *options, "--verbose"]) == 0
    text = capsys.readouterr().out
    for words in ("devices train", "devices roll out", "Binds:", "Publishing", "Divisions of the devices"):
        assert words in text


def test_what_cannot_be_is_infeasible_with_a_reason(tmp_path, answer, capsys):
    given = documents.load(answer.parent / "short.yaml")
    given["versions"] = 1
    file = tmp_path / "never.yaml"
    file.write_text(documents.dump(given))
    assert main([*SMALL, "--rollout", str(file), "--training", str(answer.parent / "run.yaml")]) == 3
    text = capsys.readouterr().out
    assert "INFEASIBLE" in text
    assert "versions 1 -> 4" in text


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"filter_yeild": 1.0}, "filter_yield"),
        ({"serving": {"weights": "fp7"}}, "serving.weights"),
        ({"publishing": {"switch": 2}}, "has no unit"),
        ({"queue": {"least_batches": 2.0}}, "below its least"),
    ],
)
def test_a_wrong_rollout_is_one_sentence(tmp_path, answer, capsys, change, problem):
    file = tmp_path / "wrong.yaml"
    file.write_text(documents.dump({**documents.load(answer.parent / "short.yaml"), **change}))
    assert main([*SMALL, "--rollout", str(file)]) == 2
    text = capsys.readouterr().err
    assert problem in text
    assert text.count("\n") == 1


def test_one_outer_unit_cannot_be_split(capsys):
    assert main(["rollout", "--topology", "asic", "--devices", "1", "--proof", "none"]) == 2
    assert "cannot be split" in capsys.readouterr().err


def test_the_contract_takes_its_rollout_side_from_the_answer(answer, tmp_path, capsys):
    data = json.loads(answer.read_text())
    plan = tmp_path / "training.json"
    plan.write_text(json.dumps(data["training"]))
    assert main(["contract", str(plan), "--rollout", str(answer), "--format", "json"]) in (0, 3)
    domains = json.loads(capsys.readouterr().out)["domains"]
    rows = {row["id"]: row for domain in domains for row in domain["rows"]}
    # The contract counts embeddings and head as quantised too.
    assert rows["publish.time_s"]["predicted"] == pytest.approx(data["publishing"]["time_s"], rel=0.01)
    assert rows["async.supply_s"]["predicted"] == pytest.approx(data["steady"]["supply_s"])
    assert rows["async.version_lag"]["limit"] == data["steady"]["versions"]
    assert rows["async.queue_tokens"]["verdict"] == "holds"
    assert main(["contract", str(plan), "--rollout", str(plan)]) == 2
    assert "rollout --format json" in capsys.readouterr().err


# --- manifests ---------------------------------------------------------------------------------------------------


@pytest.fixture
def shards(tmp_path, answer):
    plan = json.loads(answer.read_text())["serving"]
    for replica in range(plan["replicas"]):
        (tmp_path / "v" / f"replica-{replica}").mkdir(parents=True)
        for rank in range(plan["devices_per_replica"]):
            (tmp_path / "v" / f"replica-{replica}" / f"rank-{rank}.bin").write_bytes(f"{replica} {rank}".encode())
    return tmp_path / "v"


def written(answer, shards, tmp_path, version, *more):
    out = tmp_path / f"manifest-{version}.json"
    told = ["--train-version", str(version), "--rollout-version", str(version), "-o", str(out)]
    when = ["--activate-at", f"2026-05-0{version + 1}T10:00:00Z"]
    code = main(["rollout", "manifest", str(answer), "--shards", str(shards), *told, *when, *more])
    return code, out


def test_a_manifest_is_written_and_holds(answer, shards, tmp_path, capsys):
    code, first = written(answer, shards, tmp_path, 0)
    assert code == 0
    code, second = written(answer, shards, tmp_path, 1, "--parent", str(first))
    assert code == 0
    assert main(["rollout", "manifest", str(second), "--parent", str(first)]) == 0
    assert "version 1 holds" in capsys.readouterr().out
    fields = json.loads(second.read_text())
    assert set(fields) >= {
        "train_version", "rollout_version", "fp8_format", "scaling_recipe", "sharding_layout", "checksum",
        "activation_time", "rollback_parent",
    }  # fmt: skip
    assert fields["rollback_parent"] == 0


def test_a_version_without_a_parent_is_not_written(answer, shards, tmp_path, capsys):
    code, out = written(answer, shards, tmp_path, 1)
    assert code == 2
    assert "rollback_parent is missing" in capsys.readouterr().err
    assert not out.exists()


def test_a_missing_shard_is_named(answer, shards, tmp_path, capsys):
    (shards / "replica-0" / "rank-0.bin").unlink()
    code, _ = written(answer, shards, tmp_path, 0)
    assert code == 2
    assert "rank-0" in capsys.readouterr().err


def _drop(data):
    data["shards"].pop()


def _later(data):
    data["shards"][0]["activation_time"] = "2026-06-01T00:00:00Z"


def _older(data):
    data["shards"][0]["rollout_version"] = 7


def _other(data):
    data["shards"][0]["checksum"] = "0" * 64


def _layout(data):
    data["sharding_layout"]["replicas"] += 1


def _twice(data):
    data["shards"][1] = data["shards"][0]


def _parent(data):
    data["rollback_parent"] = data["rollout_version"]


def _recipe(data):
    data["scaling_recipe"] = "1x32, E8M0"


def _zone(data):
    data["shards"][0]["activation_time"] = data["activation_time"] = "2026-06-01T00:00:00"


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (_drop, "lacks 1 of"),
        (_later, "would see two versions"),
        (_older, "holds version 7"),
        (_other, "something else was loaded"),
        (_layout, "lacks"),
        (_twice, "twice"),
        (_parent, "not older"),
        (_recipe, "is scaled by"),
        (_zone, "time zone"),
    ],
)
def test_what_would_let_a_request_see_two_versions_is_refused(answer, shards, tmp_path, capsys, damage, problem):
    _, out = written(answer, shards, tmp_path, 0)
    data = json.loads(out.read_text())
    damage(data)
    out.write_text(json.dumps(data))
    assert main(["rollout", "manifest", str(out)]) == 2
    text = capsys.readouterr().err
    assert problem in text
    assert text.count("\n") <= 2


# --- versions that are sent as changes ----------------------------------------------------------------------------


@pytest.fixture
def chain(answer, shards, tmp_path):
    """A whole version 0 and a version 1 that is sent as changes against it."""
    code, first = written(answer, shards, tmp_path, 0)
    assert code == 0
    code, second = written(answer, shards, tmp_path, 1, "--parent", str(first), "--delta", str(shards))
    assert code == 0
    return first, second


def test_a_version_of_changes_names_its_base_and_the_chain_to_it(answer, shards, tmp_path, chain, capsys):
    first, second = chain
    data = json.loads(second.read_text())
    assert data["delta"]["base_version"] == data["rollback_parent"] == 0
    assert data["delta"]["base_checksum"] == json.loads(first.read_text())["checksum"]
    assert data["delta"]["chain"] == [0]
    assert all(shard["delta_bytes"] > 0 for shard in data["shards"])
    assert main(["rollout", "manifest", str(second), "--parent", str(first)]) == 0
    code, third = written(answer, shards, tmp_path, 2, "--parent", str(second), "--delta", str(shards))
    assert code == 0
    assert json.loads(third.read_text())["delta"]["chain"] == [0, 1]
    code, whole = written(answer, shards, tmp_path, 3, "--parent", str(third))
    assert code == 0
    assert "delta" not in json.loads(whole.read_text())
    capsys.readouterr()


def test_changes_against_another_version_than_the_active_one_are_refused(answer, shards, tmp_path, chain, capsys):
    first, second = chain
    code, third = written(answer, shards, tmp_path, 2, "--parent", str(second), "--delta", str(shards))
    assert code == 0
    capsys.readouterr()
    assert main(["rollout", "manifest", str(third), "--parent", str(first)]) == 2
    assert "is version 0" in capsys.readouterr().err
    assert main(["rollout", "manifest", str(third)]) == 2
    assert "must be the active one" in capsys.readouterr().err
    other = json.loads(second.read_text())
    other["delta"] = None
    for shard in other["shards"]:
        del shard["delta_bytes"], shard["delta_checksum"]
    swapped = tmp_path / "other.json"
    swapped.write_text(json.dumps(other))
    assert main(["rollout", "manifest", str(third), "--parent", str(swapped)]) == 2
    assert "delta.chain" in capsys.readouterr().err


def _base(data):
    data["delta"]["base_version"] = 7
    data["delta"]["chain"] = [7]


def _order(data):
    data["delta"]["chain"] = [3, 1, 0]


def _end(data):
    data["delta"]["chain"] = [0, 1]


def _lacks(data):
    del data["shards"][0]["delta_checksum"]


def _without(data):
    del data["delta"]


def _weights(data):
    data["delta"]["base_checksum"] = "0" * 64


def _format(data):
    data["fp8_format"], data["scaling_recipe"] = "mxfp8", "1x32, E8M0"


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (_base, "applied to the active version"),
        (_order, "not in order"),
        (_end, "not with its base_version"),
        (_lacks, "lacks delta_bytes or delta_checksum"),
        (_without, "the version has no delta"),
        (_weights, "are changes against weights 000000000000"),
        (_format, "send the version whole"),
    ],
)
def test_damaged_versions_of_changes_are_refused(chain, capsys, damage, problem):
    first, second = chain
    data = json.loads(second.read_text())
    damage(data)
    second.write_text(json.dumps(data))
    assert main(["rollout", "manifest", str(second), "--parent", str(first)]) == 2
    text = capsys.readouterr().err
    assert problem in text
    assert text.count("\n") <= 2


def test_changes_without_the_active_version_are_not_written(answer, shards, tmp_path, capsys):
    code, _ = written(answer, shards, tmp_path, 0, "--delta", str(shards))
    assert code == 2
    assert "the manifest of the active version" in capsys.readouterr().err


# --- the answer elsewhere ----------------------------------------------------------------------------------------


def asked(answer):
    return ["--rollout", str(answer.parent / "short.yaml"), "--training", str(answer.parent / "run.yaml")]


def test_an_answer_is_explained_on_both_sides(answer, tmp_path, capsys):
    out = tmp_path / "why.json"
    assert main(["explain", str(answer), "--time-limit", "3", "--format", "json", "-o", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["schema"] == "mapsearch.pools-explanation/1"
    assert found["pools"] == json.loads(answer.read_text())
    assert [row["name"] for row in found["constraints"]] == ["supply", "publish", "queue", "version"]
    assert sum(found["serving"]["memory_bytes"].values()) <= found["serving"]["limit_bytes"]
    assert main(["report", str(answer), "--explanation", str(out), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    for words in ("Who has which devices", "What sets the step", "The four constraints", "Publishing a version",
                  "A rollout replica", "Training: Where the memory goes", "no transfer is shorter"):  # fmt: skip
        assert words in page
    assert "<script" not in page
    capsys.readouterr()


def test_options_of_training_alone_are_refused_for_two_pools(answer, capsys):
    for more in (["--why-not", "tp=8"], ["--holes"], ["--weights", "hbm=1"], ["--sequence-length", "4096"]):
        assert main(["explain", str(answer), *more]) == 2
        assert "training alone" in capsys.readouterr().err
    assert main(["explain", f"{answer}#2"]) == 2
    assert "no rank 2" in capsys.readouterr().err


def test_the_contract_of_an_answer_has_both_sides(answer, tmp_path, capsys):
    data = json.loads(answer.read_text())
    assert main(["contract", str(answer), "--format", "json"]) in (0, 3)
    contract = json.loads(capsys.readouterr().out)
    rows = {row["id"]: row for domain in contract["domains"] for row in domain["rows"]}
    absent = [row["id"] for row in rows.values() if row["verdict"] == "not given" and row["domain"] in (4, 7, 8, 9)]
    assert absent == []
    plan, serving, steady = data["publishing"], data["serving"], data["steady"]
    assert rows["publish.time_s"]["predicted"] == plan["time_s"]
    assert rows["publish.transfer_s"]["predicted"] == plan["stages_s"]["transfer"]
    assert rows["publish.peers"]["predicted"] == plan["peers"]
    assert rows["async.version_lag"]["predicted"] == steady["version_lag"]
    assert rows["async.rollout_tokens_per_s"]["verdict"] == rows["async.wait_s"]["verdict"] == "holds"
    assert rows["async.one_version"]["predicted"] == "drain"
    assert serving["weights"] in rows["precision.rollout_weights"]["predicted"]
    assert rows["routing.rollout_distinct_ranks"]["predicted"] <= serving["ep"]
    assert main(["contract", str(answer), "--training", "--format", "json"]) in (0, 3)
    alone = json.loads(capsys.readouterr().out)
    assert alone["domains"][7]["missing"] and alone["domains"][8]["missing"]


def test_the_contract_holds_a_manifest_against_the_layout(answer, shards, tmp_path, capsys):
    _, file = written(answer, shards, tmp_path, 0)
    capsys.readouterr()

    def row(name):
        main(["contract", str(answer), "--manifest", name, "--format", "json"])
        domains = json.loads(capsys.readouterr().out)["domains"]
        return next(row for row in domains[7]["rows"] if row["id"] == "publish.manifest")

    assert row(str(file))["verdict"] == "holds"
    data = json.loads(answer.read_text())
    data["serving"]["weights"] = "mxfp8"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(data))
    main(["contract", str(other), "--manifest", str(file), "--format", "json"])
    domains = json.loads(capsys.readouterr().out)["domains"]
    found = next(row for row in domains[7]["rows"] if row["id"] == "publish.manifest")
    assert found["verdict"] == "broken" and "mxfp8" in found["why"]


def test_router_load_enters_the_contract(answer, tmp_path, capsys):
    load = tmp_path / "load.json"
    made = ["experts", "--zipf", "0.5", "--answer", str(answer), "--model", "mixtral-8x7b", "--backend", "none"]
    assert main([*made, "--format", "json", "-o", str(load)]) == 0
    assert main(["contract", str(answer), "--experts", str(load), "--format", "json"]) in (0, 3)
    captured = capsys.readouterr().out
    rows = {row["id"]: row for domain in json.loads(captured)["domains"] for row in domain["rows"]}
    found = json.loads(load.read_text())
    assert rows["routing.expert_skew"]["predicted"] == found["by_expert"]["skew"]
    assert rows["routing.load_max"]["predicted"] > rows["routing.load_mean"]["predicted"]
    assert main(["report", str(load), "-o", str(tmp_path / "load.html")]) == 0
    assert "Worst rank over the mean" in (tmp_path / "load.html").read_text()
    assert main(["report", str(load), "--loop", str(load), "-o", str(tmp_path / "load.html")]) == 2
    assert "does not go with router load" in capsys.readouterr().err


def test_the_training_mapping_is_read_by_every_command(answer, tmp_path, capsys):
    data = json.loads(answer.read_text())
    assert main(["check", str(answer), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["mapping"]["step_time_s"] == data["steady"]["train_s"]
    assert main(["export", str(answer), "--to", "megatron", "-o", str(tmp_path / "train.sh")]) in (0, 3)
    assert "tensor-model-parallel-size" in (tmp_path / "train.sh").read_text()
    capsys.readouterr()
    wrong = {**data, "mapping": None, "training": None, "steady": None, "serving": None, "publishing": None}
    none = tmp_path / "none.json"
    none.write_text(json.dumps({**wrong, "status": "infeasible"}))
    assert main(["export", str(none), "--to", "megatron"]) == 2
    assert "holds no pair of mappings" in capsys.readouterr().err


def test_a_folder_is_solved_again_and_a_change_is_named(answer, tmp_path, capsys):
    folder = tmp_path / "plan"
    assert main([*SMALL, *asked(answer), "-o", f"{folder}/"]) == 0
    assert {one.name for one in folder.iterdir()} == {
        "model.yaml", "run.yaml", "topology.yaml", "profile.yaml", "rollout.yaml", "mapping.yaml", "answer.json",
        "mapsearch.lock.json",
    }  # fmt: skip
    capsys.readouterr()
    assert main(["reproduce", str(folder)]) == 0
    assert "the same answer" in capsys.readouterr().out
    changed = documents.load(folder / "rollout.yaml")
    changed["filter_yield"] = 0.4
    (folder / "rollout.yaml").write_text(documents.dump(changed))
    assert main(["reproduce", str(folder)]) == 3
    assert "rollout.yaml filter_yield 0.8 -> 0.4" in " ".join(capsys.readouterr().out.split())


def test_a_folder_holds_the_cluster_of_the_rollout_pool(answer, tmp_path, capsys):
    given = documents.load(answer.parent / "short.yaml")
    given["pool"] = {"topology": "hgx-h100", "link": {"bandwidth": "25 GB/s"}}
    file, folder = tmp_path / "apart.yaml", tmp_path / "plan"
    file.write_text(documents.dump(given))
    told = ["--rollout", str(file), "--training", str(answer.parent / "run.yaml"), "-o", f"{folder}/"]
    assert main([*SMALL, *told]) == 0
    file.unlink()
    assert {"pool-topology.yaml", "pool-profile.yaml"} <= {one.name for one in folder.iterdir()}
    capsys.readouterr()
    assert main(["reproduce", str(folder)]) == 0


def _short(answer):
    return ["--rollout", str(answer.parent / "short.yaml"), "--training", str(answer.parent / "run.yaml")]


def test_the_front_as_table_document_and_chart(answer, capsys, tmp_path):
    options = [*SMALL, *_short(answer), "--pareto"]
    assert main([*options, "--plot", str(tmp_path / "front.svg"), "--verbose"]) == 0
    text = capsys.readouterr().out
    for words in ("EXACT:", "versions", "RL tokens/s", "binds", "replicas of", "@node"):
        assert words in text
    assert main([*options, "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "mapsearch.rollout-front/1"
    rates = [point["steady"]["tokens_per_s"] for point in data["points"]]
    assert rates == sorted(rates)
    whole = json.loads(answer.read_text())["steady"]["tokens_per_s"]
    assert rates[-1] == pytest.approx(whole)
    drawn = (tmp_path / "front.svg").read_text()
    assert "versions that a sample may be old" in drawn
    assert main([*options, "-o", str(tmp_path / "again.svg")]) == 0
    assert (tmp_path / "again.svg").read_text() == drawn
    assert capsys.readouterr().out == ""


def test_the_front_of_several_queues_as_html(answer, capsys, tmp_path):
    file = tmp_path / "front.html"
    options = [*SMALL, *_short(answer), "--pareto", "--versions", "4..5", "--queue", "0,0.5"]
    assert main([*options, "--objective", "device-hours", "-o", str(file)]) == 0
    text = file.read_text()
    assert "queue of 0.5 batches" in text
    assert "device-hours per M tokens" in text


def test_costs_by_option_and_what_is_missing(answer, capsys):
    options = [*SMALL, *_short(answer), "--objective", "cost"]
    assert main(options) == 2
    assert "device.price_per_hour" in capsys.readouterr().err
    assert main([*options, "--training-price", "2.5", "--rollout-price", "1", "-v"]) == 0
    text = capsys.readouterr().out
    assert "per million RL tokens" in text
    assert "A device-hour costs 2.50 in training and 1.00 in rollout" in text
    assert main([*options, "--training-price", "2.5"]) == 2
    assert "--rollout-price" in capsys.readouterr().err


def test_a_rollout_cluster_of_its_own_is_used_in_part_where_that_is_cheaper(answer, capsys, tmp_path):
    given = documents.load(str(answer.parent / "short.yaml"))
    file = tmp_path / "own.yaml"
    file.write_text(documents.dump({**given, "pool": {"topology": "hgx-h100", "link": {"bandwidth": "25 GB/s"}}}))
    options = [*SMALL, "--rollout", str(file), "--training", str(answer.parent / "run.yaml"), "--format", "json"]
    assert main([*options, "--objective", "device-hours"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "optimal"
    assert told["idle_devices"] > 0
    assert main(options) == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole["idle_devices"] == 0
    assert told["cost"]["device_hours_per_million"] < whole["cost"]["device_hours_per_million"]
    assert told["steady"]["step_s"] >= whole["steady"]["step_s"]


def test_a_short_time_limit_has_a_pair_and_says_how_far_off_it_may_be(answer, capsys):
    assert main([*SMALL, *_short(answer), "--time-limit", "0.001", "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "feasible"
    assert told["mapping"]
    best = json.loads(answer.read_text())["steady"]["step_s"]
    assert told["bound_s"] <= best <= told["steady"]["step_s"]
    assert told["gap"] == pytest.approx(1.0 - told["bound_s"] / told["steady"]["step_s"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--versions", "3"], "add --pareto"),
        (["--plot", "x.svg"], "add --pareto"),
        (["--pareto", "--versions", "5..2"], "smaller number first"),
        (["--pareto", "--versions", "many"], "1..8 or 1,2,4"),
        (["--pareto", "--queue", "-1"], "0,0.5,1"),
        (["--pareto", "--plot", "x.txt"], "accepted: .html"),
        (["--training-price", "2"], "--objective cost"),
    ],
)
def test_options_that_say_nothing_are_refused(options, words, capsys):
    assert main([*SMALL, *options]) == 2
    assert words in capsys.readouterr().err
