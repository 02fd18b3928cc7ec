"""`mapsearch sweep`: tables, data, exit codes, progress, and one sentence for what is wrong."""

from __future__ import annotations

import csv
import io
import json
import sys

import pytest
import yaml

from mapsearch.cli.main import main
from mapsearch.cli.progress import SweepClock, sweeping
from mapsearch.sweeps.run import SweepProgress

GRID = {"devices": [1, 2], "fix.tp": [1, 2]}


@pytest.fixture
def command(capsys, folder):
    def run(file, *options):
        code = main(["sweep", str(file), *map(str, options)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


TABLE = """\
try: 4 items: 3 feasible, 1 infeasible
model=model.yaml run=run.yaml topology=asic-8 proof=none

Best by tokens/s, of each devices
devices  fix.tp  status        step  tokens/s    MFU  worst HBM  exposed  mapping
1        1       feasible  4.381 ms     935 k  4.4 %     157 MB      0 %  DP1 | EDP1
2        1       feasible  2.191 ms    1.87 M  4.4 %     367 MB      0 %  DP2 | EDP2

Items
devices  fix.tp  status          step  tokens/s    MFU  worst HBM  exposed  mapping
1        1       feasible    4.381 ms     935 k  4.4 %     157 MB      0 %  TP1 DP1 | EDP1
1        2       infeasible
2        1       feasible    2.191 ms    1.87 M  4.4 %     367 MB      0 %  TP1 DP2 | EDP2
2        2       feasible    4.895 ms     837 k  2.0 %     353 MB   23.9 %  TP2 DP1 | EDP2
"""


def shape(text):
    """The table without its figures, which follow the cost model and are not this test's."""
    return [[word for word in line.split() if not word[0].isdigit()] for line in text.splitlines()]


def test_the_table_shows_what_varies(command, folder):
    code, out, err = command(folder.sweep(grid=GRID), "-o", folder.out, "-j1", "--group-by", "devices")
    assert code == 0
    assert shape(out) == shape(TABLE)
    assert err == f"mapsearch: 4/4 items\nresults: {folder.out}\n"


def test_a_setting_that_an_item_does_not_have_is_a_dash(command, folder):
    file = folder.sweep(items=[{"devices": 2}, {"fix.tp": 8, "time_limit": 1e-9}])
    code, out, _ = command(file, "-o", folder.out, "-j1", "-q")
    assert code == 4
    rows = [line.split()[:4] for line in out.split("Items\n")[1].splitlines()[1:3]]
    assert rows == [["2", "-", "-", "feasible"], ["-", "8", "1e-09", "unknown"]]
    assert "  fix.tp=8, time_limit=1e-09: time limit: the time limit ended the search" in out


def test_json_and_csv(command, folder):
    file = folder.sweep(grid=GRID)
    code, out, _ = command(file, "-o", folder.out, "-j1", "-f", "json", "-q")
    data = json.loads(out)
    assert (code, data["schema"], data["items"], data["missing"]) == (0, "mapsearch.sweep-summary/1", 4, 0)
    assert data["varying"] == ["devices", "fix.tp"]
    assert data["best"] == [{"group": {}, "key": data["records"][2]["key"]}]
    code, again, err = command(file, "-o", folder.out, "-f", "json", "-q")
    assert (code, again, err) == (0, out, "")
    _, out, _ = command(file, "-o", folder.out, "-f", "csv", "-q")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["status"] for row in rows] == ["feasible", "infeasible", "feasible", "feasible"]
    assert [row["devices"] for row in rows] == ["1", "1", "2", "2"]
    assert {row["devices_used"] for row in rows} == {"1", "", "2"}


def test_exit_codes(command, folder):
    (folder.path / "bad.yaml").write_text("{name: bad, layers: -4, hidden: 256, heads: 8}\n")
    file = folder.sweep(grid={"model": ["bad.yaml", "model.yaml"]})
    code, out, _ = command(file, "-o", folder.out, "-j1", "-q")
    assert code == 4
    assert "try: 2 items: 1 feasible, 1 failed" in out
    assert "Without a result model=bad.yaml: InputError: " in " ".join(out.split())
    file = folder.sweep(grid={"devices": [1], "fix.tp": [2, 4]})
    assert command(file, "-o", folder.path / "infeasible", "-j1", "-q")[0] == 3


def test_export_and_dry_run_run_nothing(command, folder):
    file = folder.sweep(grid=GRID)
    code, out, _ = command(file, "--dry-run")
    assert code == 0
    assert out.splitlines()[0] == "try: 4 items"
    assert len(json.loads(command(file, "--dry-run", "-f", "json")[1])) == 4
    assert command(file, "--dry-run", "-f", "csv")[1].startswith("key,model,run,topology,proof,devices,fix.tp\n")
    assert not folder.out.exists()
    code, _, err = command(file, "-o", folder.out, "--export")
    assert (code, "no such folder; run the sweep first" in err) == (2, True)
    command(folder.sweep(grid={"devices": [2], "fix.tp": [1]}), "-o", folder.out, "-j1")
    (folder.out / "results.parquet").unlink(missing_ok=True)
    code, out, _ = command(folder.sweep(grid=GRID), "-o", folder.out, "--export")
    assert (code, out.splitlines()[0]) == (4, "try: 4 items: 1 feasible, 3 not run")
    assert (folder.out / "results.parquet").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "--output: names the folder of the results"),
        (("-o", "out", "-j0"), "0 is not in the range"),
        (("-o", "out", "-j2", "--local-cluster", "2"), "jobs and local-cluster exclude each other"),
        (("-o", "out", "--scheduler", "here"), "'here' is no address"),
    ],
)
def test_wrong_options_are_one_sentence(command, folder, options, told):
    code, out, err = command(folder.sweep(grid=GRID), *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{grd: {devices: [1]}}", "grd: unknown key (did you mean 'grid'?)"),
        ("{grid: {model: [moe-5tt]}}", "moe-5tt: no such file, and no built-in model"),
        ("{grid: {devices: [0]}}", "grid.devices: takes a whole number from 1"),
        ("[1]", "holds a list where a sweep"),
        ("", "is empty"),
    ],
)
def test_wrong_files_are_one_sentence(command, folder, text, told):
    file = folder.path / "wrong.yaml"
    file.write_text(text)
    code, out, err = command(file, "-o", folder.out)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"mapsearch: {file}: ")
    assert told in err
    assert not folder.out.exists()


def test_an_unknown_group_is_refused_before_anything_runs(command, folder):
    code, out, err = command(folder.sweep(grid=GRID), "-o", folder.out, "--group-by", "device")
    assert (code, out) == (2, "")
    assert "--group-by: 'device' is no setting of this sweep (did you mean 'devices'?)" in err
    assert not folder.out.exists()


def test_a_missing_library_is_exit_5(command, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, _, err = command(folder.sweep(grid=GRID), "-o", folder.out, "--local-cluster", "2")
    assert code == 5
    assert err == "mapsearch: dask.distributed is not installed; pip install 'mapsearch[sweep]'\n"


def test_schemas_accept_what_is_written_and_flag_what_is_refused(command, folder, capsys):
    from jsonschema import Draft202012Validator

    def schema(document):
        assert main(["schema", document]) == 0
        return Draft202012Validator(json.loads(capsys.readouterr().out))

    file = folder.sweep(grid=GRID, zip=[{"top": [1, 2]}], items=[{"devices": 4}], exclude=[{"devices": 4}])
    document = yaml.safe_load(file.read_text())
    assert schema("sweep").is_valid(document)
    assert not schema("sweep").is_valid({**document, "grd": {}})
    assert not schema("sweep").is_valid({"grid": {"devices": []}})
    command(folder.sweep(grid=GRID), "-o", folder.out, "-j1")
    item = schema("sweep-item")
    assert all(item.is_valid(json.loads(line)) for line in folder.lines())


def test_time_left_follows_the_items_that_ran_now():
    now = [0.0]
    clock = SweepClock(lambda: now[0])
    assert clock.words(SweepProgress(200, 80)) == "80/200 items"
    now[0] = 20.0  # the workers start
    assert clock.words(SweepProgress(200, 80, 1)) == "81/200 items"
    now[0] = 49.0
    assert clock.words(SweepProgress(200, 80, 20, 2)) == "100/200 items, 2 failed, about 153 s left"
    assert clock.words(SweepProgress(200, 80, 120)) == "200/200 items"


def test_a_bar_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with sweeping(quiet=False) as (progress, remark):
        progress(SweepProgress(10, 2, 3, 1))
        remark("half a line [is] cut off")
    err = capsys.readouterr().err
    assert "mapsearch: half a line [is] cut off" in err
    assert "5/10 items, 1 failed" in err
