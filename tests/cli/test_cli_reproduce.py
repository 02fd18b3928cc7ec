"""`mapsearch solve -o DIR/` and `mapsearch reproduce DIR` from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "sweeps"))

from tiny_sweeps import MODEL, RUN

from mapsearch import documents


@pytest.fixture
def solved(mapsearch, tmp_path):
    (tmp_path / "tiny-model.yaml").write_text(MODEL)
    (tmp_path / "tiny-run.yaml").write_text(RUN)
    inputs = ("-m", tmp_path / "tiny-model.yaml", "-r", tmp_path / "tiny-run.yaml", "-t", "asic-8", "--devices", "4")
    folder = tmp_path / "out"
    result = mapsearch("solve", *inputs, "--top", "2", "--fix", "tp=1", "-o", f"{folder}/")
    return folder, result


def test_a_folder_of_everything(solved):
    folder, result = solved
    assert result.code == 0
    assert result.out.startswith("OPTIMAL")
    assert f"written to {folder}/" in result.err
    assert sorted(path.name for path in folder.iterdir()) == [
        "answer.json",
        "mapping.yaml",
        "mapsearch.lock.json",
        "model.yaml",
        "profile.yaml",
        "run.yaml",
        "topology.yaml",
    ]
    lock = documents.load(folder / "mapsearch.lock.json")
    assert lock["options"] | {"time_limit": None} == lock["options"]
    assert (lock["options"]["devices"], lock["options"]["top"]) == (4, 2)
    assert lock["documents"]["run"]["content"]["constraints"]["fix"] == {"tp": "1"}


def test_the_files_are_inputs_of_every_command(solved, mapsearch):
    folder, _ = solved
    inputs = [
        part for kind in ("model", "run", "topology", "profile") for part in (f"--{kind}", folder / f"{kind}.yaml")
    ]
    assert mapsearch("check", folder / "mapping.yaml", *inputs, "--devices", "4").code == 0
    assert mapsearch("check", folder / "answer.json").code == 0
    assert mapsearch("contract", folder / "mapping.yaml", *inputs, "--devices", "4").code == 0


def test_the_same(solved, mapsearch):
    folder, _ = solved
    result = mapsearch("reproduce", folder)
    assert (result.code, result.out.splitlines()[0]) == (0, "SAME: the same answer; no input and no version changed")
    assert json.loads(mapsearch("reproduce", folder, "-f", "json").out)["same"] is True


def test_another_one(solved, mapsearch):
    folder, _ = solved
    run = documents.load(folder / "run.yaml")
    (folder / "run.yaml").write_text(documents.dump({**run, "sequence_length": 1024}))
    result = mapsearch("reproduce", folder)
    assert result.code == 3
    assert "1 field changed: run.yaml sequence_length 512 -> 1024" in " ".join(result.out.split())
    assert "run.yaml  sequence_length  512     1024" in result.out
    markdown = mapsearch("reproduce", folder, "-f", "md").out
    assert "| run.yaml | sequence_length | 512 | 1024 |" in markdown
    assert "input,False,inputs,run.yaml,sequence_length,512,1024" in mapsearch("reproduce", folder, "-f", "csv").out
    assert "sequence_length" in mapsearch("reproduce", folder, "-f", "html").out


def test_slips(solved, mapsearch, tmp_path):
    folder, _ = solved
    assert mapsearch("reproduce", tmp_path / "nowhere").code == 2
    result = mapsearch("reproduce", tmp_path)
    assert result.code == 2 and "holds no mapsearch.lock.json" in result.err
    result = mapsearch("solve", "-t", "asic-8", "-o", tmp_path)
    assert result.code == 2 and "directory with other files" in result.err
    (folder / "model.yaml").write_text("layers: 3\n")
    result = mapsearch("reproduce", folder)
    assert result.code == 2 and "changed since it was locked" in result.err
