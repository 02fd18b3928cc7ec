"""The figures of the accuracy benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import accuracy
from benchmarks.scores import kendall, summary


def test_summary_by_hand() -> None:
    found = summary([0.1, -0.2, 0.3, -0.4, -0.5])
    assert found["n"] == 5
    assert (found["median"], found["max"], found["bias"]) == (0.3, 0.5, -0.2)
    assert found["mean"] == pytest.approx(0.3)
    assert found["p90"] == pytest.approx(0.46)
    assert summary([])["median"] is None


def test_kendall_by_hand() -> None:
    assert kendall([1, 2, 3, 4], [10, 20, 30, 40]) == 1.0
    assert kendall([1, 2, 3, 4], [4, 3, 2, 1]) == -1.0
    # Of six pairs one is in the other order: (5 - 1) / 6.
    assert kendall([1, 2, 3, 4], [2, 1, 3, 4]) == pytest.approx(4 / 6)
    assert kendall([1, 1], [1, 2]) is None


def test_a_folder_of_rows_is_scored(tmp_path: Path, row: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    rows = []
    for number, tp in enumerate((1, 2, 4, 8, 16)):
        mapping = row["mapping"] | {"tp": tp, "pp": 1, "vpp": None, "dp": 16 // tp}
        rows.append(row | {"id": f"own_rows/{number}", "mapping": mapping, "measured": {"iteration_s": 4.0 + number}})
    rows.append(row | {"id": "own_rows/c", "quality": "C"})
    rows.append(row | {"id": "own_rows/int8", "precision": "int8"})
    (tmp_path / "own_rows.yaml").write_text(yaml.safe_dump(json.loads(json.dumps(rows))), encoding="utf-8")
    accuracy.main(["--rows", str(tmp_path), "--json", "--processes", "1"])
    found = json.loads(capsys.readouterr().out)
    assert found["time"]["all"]["n"] == found["time"]["dense"]["n"] == found["time"]["H100"]["n"] == 5
    assert found["time"]["own_rows"]["n"] == 5 and found["time"]["moe"]["n"] == 0
    assert found["time"]["quality C"]["n"] == 1
    assert found["tau"]["n"] == found["regret"]["n"] == 1
    # More tensor parallelism is slower in these rows and in the model.
    assert found["tau"]["median"] > 0.5
    # The constant guess of five rows that differ in time only: 4 s against the median rate of 5, 6, 7, 8 s, ...
    assert found["naive"]["all"]["n"] == 5
    assert found["not_counted"]["not represented"] == 1
    accuracy.main(["--rows", str(tmp_path), "--processes", "1"])
    assert "The worst 20 rows" in capsys.readouterr().out
