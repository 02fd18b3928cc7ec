"""`mapsearch contract`: formats, exit codes, ranks, the template and measurements."""

from __future__ import annotations

import csv
import io
import json

import pytest

MAPPING = """
tp: 4
cp: 8
dp: 128
ep: 16
edp: 256
recompute: norm+activation+moe
zero: 3
offload: optimizer
dispatcher: all-gather
"""


@pytest.fixture
def mapping_file(tmp_path):
    path = tmp_path / "mapping.yaml"
    path.write_text(MAPPING)
    return path


def test_a_table_of_ten_domains(mapsearch, mapping_file):
    result = mapsearch("contract", mapping_file)
    assert result.code == 0
    first = result.out.splitlines()[0]
    assert first.startswith("NOT GIVEN: ") and "quantities in 10 domains" in first
    assert "10. topology: no hot group spans an unverified slow link" in result.out
    assert "missing: rollout.quantise_s" in result.out
    assert max(map(len, result.out.splitlines())) <= 120


@pytest.mark.parametrize("columns", ["100", "80"])
def test_it_fits_narrow_screens(mapsearch, mapping_file, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    result = mapsearch("contract", mapping_file)
    rows = [line for line in result.out.splitlines() if line.startswith(("  model.", "  state.", "  ep.", "  place."))]
    assert rows and max(map(len, rows)) <= int(columns)
    assert any(line.endswith("must be measured") for line in rows)


def test_verbose_says_where_it_comes_from_and_how_it_is_measured(mapsearch, mapping_file):
    out = mapsearch("contract", mapping_file, "--verbose").out
    assert "run long-context-128k: routing.capacity_factor 1.25 (assumed)" in " ".join(out.split())
    assert "record n_e: tokens that each expert of each MoE layer received" in " ".join(out.split())


def test_every_format_has_every_row(mapsearch, mapping_file):
    domains = json.loads(mapsearch("contract", mapping_file, "-f", "json").out)["domains"]
    rows = [row for domain in domains for row in domain["rows"]]
    records = list(csv.DictReader(io.StringIO(mapsearch("contract", mapping_file, "-f", "csv").out)))
    assert [record["id"] for record in records] == [row["id"] for row in rows]
    markdown = mapsearch("contract", mapping_file, "-f", "md").out
    html = mapsearch("contract", mapping_file, "-f", "html").out
    for row in rows:
        assert f"`{row['id']}`" in markdown
        assert row["id"] in html


def test_a_broken_contract_exits_3(mapsearch, mapping_file, tmp_path):
    plain = tmp_path / "plain.yaml"
    plain.write_text("dp: 4096\nep: 384\nedp: 1\n")
    assert mapsearch("contract", plain).code == 2
    plain.write_text("dp: 4096\nep: 64\nedp: 64\n")
    result = mapsearch("contract", plain)
    assert result.code == 3
    assert result.out.startswith("BROKEN")


def filled(text, name, value, unit):
    """The template with one value filled in."""
    empty = f'"{name}": {{value: null, unit: "{unit}", source: \'\'}}'
    assert empty in text
    return text.replace(empty, f"{name}: {{value: {value}, unit: {unit}, source: a test}}")


def test_template_and_measurements(mapsearch, mapping_file, tmp_path):
    template = tmp_path / "measured.yaml"
    assert mapsearch("contract", mapping_file, "--template", "-o", template).code == 0
    text = filled(filled(template.read_text(), "step.time_s", 300, "s"), "step.ep_s", 100, "s")
    template.write_text(text)
    result = mapsearch("contract", mapping_file, "--measured", template)
    assert result.code == 0
    assert "Which formula is off" in result.out and "step.ep_s" in result.out
    template.write_text(filled(text, "ep.dispatch_bytes", 7, "bytes"))
    result = mapsearch("contract", mapping_file, "--measured", template)
    assert result.code == 3
    assert "outside the band: F1.4, F4.2, or an input of it, is off" in " ".join(result.out.split())


def test_slips(mapsearch, mapping_file, tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("quantities: {step.tiem_s: {value: 1, unit: s, source: x}}\n")
    result = mapsearch("contract", mapping_file, "--measured", wrong)
    assert result.code == 2
    assert "did you mean 'step.time_s'" in result.err
    assert mapsearch("contract", f"{mapping_file}#2", "--rank", 2).code == 2
    assert mapsearch("contract", mapping_file, "--rank", 2).code == 2
