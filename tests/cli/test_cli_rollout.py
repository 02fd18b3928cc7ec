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
