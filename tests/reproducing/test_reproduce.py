"""Repetitions: the same answer, another one, and what it is laid to."""

from __future__ import annotations

import json

import pytest
from tiny_folders import tiny_folder, tiny_inputs

from mapsearch import documents
from mapsearch.api import solve
from mapsearch.cli.options import check_folder
from mapsearch.errors import InputError, UsageError
from mapsearch.reproducing import bundle as bundles
from mapsearch.reproducing.bundle import FILES, INPUTS, read_bundle, write_bundle
from mapsearch.reproducing.differences import differences
from mapsearch.reproducing.repeat import reproduce
from mapsearch.reproduction import LOCK_FILE, Lock


@pytest.fixture
def folder(tmp_path):
    return tiny_folder(tmp_path / "out")


def edit(folder, kind, **changes):
    """Change fields of one document, by dotted path."""
    data = documents.load(folder / FILES[kind])
    for name, value in changes.items():
        *inner, last = name.split("__")
        here = data
        for key in inner:
            here = here[int(key)] if isinstance(here, list) else here[key]
        here[last] = value
    (folder / FILES[kind]).write_text(documents.dump(data))


def relock(folder, **changes):
    """A lock file as another version would have written it."""
    lock = Lock.model_validate(documents.load(folder / LOCK_FILE)).model_copy(update=changes)
    sealed = lock.model_copy(update={"sha256": bundles._lock_sha256(lock)})
    (folder / LOCK_FILE).write_text(sealed.to_json())


def test_the_same_inputs_give_the_same_answer(folder):
    found = reproduce(str(folder))
    assert (found.same, found.complete, found.cause) == (True, True, "nothing")
    assert found.sentence == "the same answer; no input and no version changed"
    assert found.inputs == found.versions == found.answer == found.trials == []
    assert found.step_time_s == found.locked_step_time_s


def test_the_same_solve_writes_the_same_bytes(folder, tmp_path):
    again = tiny_folder(tmp_path / "again")
    names = {FILES[kind] for kind in (*INPUTS, "mapping", "answer")} | {LOCK_FILE}
    assert {one.name for one in again.iterdir()} == names
    for name in names:
        assert (folder / name).read_bytes() == (again / name).read_bytes(), name


def test_hashes_are_those_of_the_answer(folder):
    lock = Lock.model_validate(documents.load(folder / LOCK_FILE))
    answer = documents.load(folder / "answer.json")
    for kind, digest in answer["provenance"]["input_sha256"].items():
        assert lock.documents[kind].sha256 == digest


def test_a_change_that_matters_is_named(folder):
    edit(folder, "topology", levels__1__bandwidth="5 GB/s", levels__0__bandwidth="7 GB/s")
    found = reproduce(str(folder))
    assert not found.same and found.cause == "inputs"
    assert [(one.field, one.before, one.after) for one in found.inputs] == [
        ("levels.board.bandwidth", "100 GB/s", "7 GB/s"),
        ("levels.rack.bandwidth", "25 GB/s", "5 GB/s"),
    ]
    assert found.step_time_s > found.locked_step_time_s
    assert any(one.field.endswith("step_time_s") for one in found.answer)
    assert found.trials == []  # one document changed: it is the cause


def test_a_change_without_effect_is_named_as_well(folder):
    edit(folder, "model", source="somewhere else")
    found = reproduce(str(folder))
    assert found.same and found.cause == "nothing"
    assert [(one.file, one.field, one.after) for one in found.inputs] == [("model.yaml", "source", "somewhere else")]


def test_of_several_changes_each_is_tried_alone(folder):
    edit(folder, "model", source="somewhere else")
    edit(folder, "profile", memory_bandwidth=0.4)
    found = reproduce(str(folder))
    assert {trial.changed: trial.same for trial in found.trials} == {"model.yaml": True, "profile.yaml": False}
    assert "alone each of these changes the answer: profile.yaml" in found.sentence


def test_another_version_is_named(folder):
    relock(folder, version="0.0.1", libraries={"numpy": "1.0"})
    found = reproduce(str(folder))
    assert found.same and found.cause == "nothing"
    told = {one.file: (one.before, one.after) for one in found.versions}
    assert told["mapsearch"][0] == "0.0.1" and told["numpy"][0] == "1.0"
    assert told["ortools"][0] == "(absent)"


def slower(folder):
    """A lock whose answer is another one than this version gives: a regression between versions."""
    lock = Lock.model_validate(documents.load(folder / LOCK_FILE))
    content = json.loads(json.dumps(lock.documents["answer"].content))
    content["mappings"][0]["step_time_s"] *= 0.9
    (folder / "answer.json").write_text(json.dumps(content))
    held = {**lock.documents, "answer": lock.documents["answer"].model_copy(update={"content": content})}
    relock(folder, version="0.0.1", documents=held)


def test_a_regression_between_versions_is_laid_to_them(folder):
    slower(folder)
    found = reproduce(str(folder))
    assert not found.same and found.cause == "versions"
    assert [one.file for one in found.versions] == ["mapsearch"]
    assert [one.field for one in found.answer] == ["mappings.0.step_time_s"]


def test_versions_and_inputs_are_told_apart(folder):
    slower(folder)
    edit(folder, "profile", memory_bandwidth=0.4)
    found = reproduce(str(folder))
    assert found.cause == "inputs and versions"
    assert [(trial.changed, trial.same) for trial in found.trials] == [("", False), ("profile.yaml", False)]


def test_an_edited_mapping_or_answer_is_named_and_said_to_be_no_input(folder):
    edit(folder, "mapping", micro_batch=2)
    data = documents.load(folder / "answer.json")
    data["mappings"][0]["mfu"] = 0.9
    (folder / "answer.json").write_text(json.dumps(data))
    found = reproduce(str(folder))
    assert found.same
    assert {(one.file, one.field) for one in found.inputs} == {
        ("mapping.yaml", "micro_batch"),
        ("answer.json", "mappings.0.mfu"),
    }
    assert any("which `solve` writes and does not read" in note for note in found.notes)


def test_comments_and_order_change_nothing(folder):
    file = folder / FILES["run"]
    data = documents.load(file)
    file.write_text("# by hand\n" + documents.dump(dict(reversed(data.items()))))
    assert reproduce(str(folder)).inputs == []


def test_an_edited_lock_is_refused(folder):
    text = (folder / LOCK_FILE).read_text()
    (folder / LOCK_FILE).write_text(text.replace('"top": 2', '"top": 3'))
    with pytest.raises(InputError, match="was edited"):
        reproduce(str(folder))
    (folder / LOCK_FILE).unlink()
    with pytest.raises(InputError, match=r"holds no mapsearch.lock.json; `mapsearch solve -o DIR/` writes one"):
        reproduce(str(folder))


def test_a_missing_or_broken_document_is_named(folder):
    edit(folder, "model", layers="many")
    with pytest.raises(InputError, match=r"model.yaml: layers: .*changed since it was locked: layers 4 -> many"):
        reproduce(str(folder))
    (folder / FILES["model"]).unlink()
    with pytest.raises(InputError, match=r"model.yaml: no such file"):
        reproduce(str(folder))


def test_a_document_that_cannot_be_solved_any_more_names_the_change(folder):
    edit(folder, "run", precision="nvfp4")
    with pytest.raises(InputError, match=r"no peak for fp4.*run.yaml precision bf16 -> nvfp4"):
        reproduce(str(folder))


def test_options_are_repeated(tmp_path):
    folder = tiny_folder(tmp_path / "out", devices=8, top=1, proof="auto")
    found = reproduce(str(folder))
    assert found.same
    assert documents.load(folder / FILES["topology"])["levels"][1]["size"] == 2  # as it was before it was scaled
    assert len(documents.load(folder / "answer.json")["mappings"]) == 1


def test_nothing_fits_is_an_answer_too(tmp_path):
    inputs = tiny_inputs(device={**json.loads(tiny_inputs()["topology"].model_dump_json())["device"], "hbm": "2 MB"})
    folder = tiny_folder(tmp_path / "out", inputs)
    assert not (folder / FILES["mapping"]).exists()
    found = reproduce(str(folder))
    assert found.same and found.status == "infeasible" and found.step_time_s is None
    edit(folder, "topology", device__hbm="64 MB")
    found = reproduce(str(folder))
    assert not found.same and found.status in ("optimal", "feasible")


def test_a_folder_is_written_over_only_where_a_lock_is(folder, tmp_path):
    check_folder(str(folder))
    other = tmp_path / "other"
    other.mkdir()
    check_folder(str(other))
    (other / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="directory with other files"):
        check_folder(str(other))
    with pytest.raises(UsageError, match="does not exist"):
        check_folder(str(tmp_path / "no" / "such"))
    write_bundle(str(folder), {LOCK_FILE: (folder / LOCK_FILE).read_text()})
    assert not (folder / "model.yaml").exists()


def test_a_stopped_search_says_nothing(folder, monkeypatch):
    from mapsearch.reproducing import repeat

    def stopped(*args, **kwargs):
        return solve(*args, **kwargs).model_copy(update={"interrupted": True})

    monkeypatch.setattr(repeat, "solve", stopped)
    found = reproduce(str(folder))
    assert not found.complete and "nothing is known" in found.sentence


def test_differences_by_path():
    before = {"a": 1, "b": [{"name": "x", "v": 1}, {"name": "y", "v": 2}], "c": [1, 2], "d": True}
    after = {"a": 1.0, "b": [{"name": "x", "v": 1}, {"name": "z", "v": 3}], "c": [1], "d": 1}
    told = [(one.field, one.before, one.after) for one in differences("f", before, after)]
    assert told == [
        ("b.y", '{"name": "y", "v": 2}', "(absent)"),
        ("b.z", "(absent)", '{"name": "z", "v": 3}'),
        ("c", "[1, 2]", "[1]"),
        ("d", "true", "1"),
    ]
    swapped = {**before, "b": list(reversed(before["b"]))}
    assert [one.field for one in differences("f", before, swapped)] == ["b"]


def test_a_bundle_reads_back_as_it_was(folder):
    found = read_bundle(str(folder))
    assert found.changes == [] and found.changed == []
    assert found.inputs == found.locked
