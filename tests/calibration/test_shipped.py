"""The fit that ships: its file, its error bands, profiles by name, and the marks on an answer."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mapsearch
from mapsearch import documents
from mapsearch.calibration.allocator import Fragmentation
from mapsearch.calibration.fit import BLOCKS, Fit, observations
from mapsearch.calibration.generations import EPOCHS
from mapsearch.calibration.parameters import NAMES, PARAMETERS, applied
from mapsearch.calibration.rows import Case, case_of
from mapsearch.calibration.shipped import (
    FEW,
    Band,
    bands_of,
    default_profile,
    profile_named,
    read,
    shipped,
    written,
)
from mapsearch.cli.main import main
from mapsearch.errors import InputError
from mapsearch.inventories.model import Model
from mapsearch.inventories.profiles import load_profile, profile_names
from mapsearch.inventories.run import Run
from mapsearch.topologies.load import fabric_of, load_topology

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "published"
FILE = resources.files("mapsearch.calibration") / "catalogue" / "fit.yaml"
TINY: dict[str, Any] = {
    "model": Model(
        name="tiny", layers=8, hidden=2048, heads=16, kv_heads=16, head_dim=128, ffn=8192, vocab=1024, gated_ffn=True
    ),
    "run": Run(name="small", sequence_length=2048, global_batch=256),
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = documents.parse(FILE.read_text(encoding="utf-8"), file="fit.yaml")
    return found


def own_case(row: dict[str, Any], hardware: dict[str, dict[str, Any]]) -> Case:
    found = case_of(row, hardware)
    assert isinstance(found, Case)
    return found


# --- the file -----------------------------------------------------------------------------------------------------


def test_the_file_speaks_of_every_parameter_and_no_other(document: dict[str, Any]) -> None:
    vectors = [document["shared"], *(v for block in document["own"].values() for v in block.values())]
    assert len(vectors) > 10
    for vector in vectors:
        assert tuple(vector) == NAMES
        assert all(0.01 < factor < 100.0 for factor in vector.values())


def test_every_block_of_the_file_is_known(document: dict[str, Any]) -> None:
    own, counts = document["own"], document["counts"]
    assert set(own) == set(counts) == set(BLOCKS)
    assert all(set(own[block]) == set(counts[block]) for block in BLOCKS)
    assert set(own["device"]) <= set(profile_names())
    assert set(own["epoch"]) <= {year for year, _ in EPOCHS} | {"2026"}
    assert set(own["release"]) == set(document["releases"])
    for generation in document["releases"].values():
        assert generation["family"] in own["family"] and generation["epoch"] in own["epoch"]
    # Every run is of one device, one family, one year and one release.
    assert {sum(counts[block].values()) for block in BLOCKS} == {document["rows"]}
    assert document["sources"] == sorted(set(document["sources"]))
    assert all((PUBLISHED / f"{source}.yaml").exists() for source in document["sources"])


def test_fitted_factors_break_no_bound() -> None:
    for device, family in (("h100", "fsdp"), ("b200", "megatron"), ("a100", "megatron-deepspeed")):
        found = shipped().profile(load_profile(device), family, "2024")
        for parameter in PARAMETERS:
            for field in parameter.fields:
                head, _, rest = field.partition(".")
                value = getattr(getattr(found, head), rest) if rest else getattr(found, head)
                assert value is None or 0.0 <= value <= parameter.most, (device, field)


def test_bands_are_sane(document: dict[str, Any]) -> None:
    bands = shipped().bands
    assert {"all", "all dense", "all moe"} <= set(bands)
    for name, band in bands.items():
        assert band.group == name and FEW <= band.rows <= document["rows"]
        assert 0.0 < band.order_share < band.share < 1.5
        assert name in band.rests_on and str(band.rows) in band.rests_on
    assert bands["all"].rows == bands["all dense"].rows + bands["all moe"].rows == document["rows"]


def test_what_is_written_is_read_back(row: dict[str, Any], hardware: dict[str, dict[str, Any]]) -> None:
    rows = observations([own_case(row, hardware)])
    vector = np.log(np.linspace(0.5, 2.0, len(NAMES)))
    own = {"device": {"h100": 0.1 * vector}, "epoch": {"2026": -0.2 * vector}}
    memory = Fragmentation(0.1, {"fsdp": 0.05}, 3, ("a",))
    found = read(documents.parse(written(Fit(vector, own), rows, np.zeros(1), memory), file="written"))
    assert found.fragmentation.share("fsdp") == pytest.approx(math.expm1(0.15), abs=1e-3)
    assert found.rows == found.sources == 1 and found.counts["device"] == {"h100": 1} and found.bands == {}
    assert np.allclose(found.fit.shared, vector, atol=1e-3)
    assert np.allclose(found.fit.logs(device="h100", epoch="2026"), 0.9 * vector, atol=2e-3)


def test_bands_by_hand(row: dict[str, Any], hardware: dict[str, dict[str, Any]]) -> None:
    one = observations([own_case(row, hardware)])[0]
    study = [replace(one.case, groups=replace(one.case.groups, study=name)) for name in "ab"]
    rows = [replace(one, case=study[index // 10]) for index in range(20)]
    # Two studies of ten, 20 % too slow and 20 % too fast, with a tenth of that inside each.
    inside = np.tile([0.02, -0.02], 10)
    bands = bands_of(rows, np.repeat([0.2, -0.2], 10) + inside)
    assert set(bands) == {"h100 dense", "h100", "all dense", "all"}
    assert bands["all"].rows == 20
    assert bands["all"].share == pytest.approx(math.expm1(0.18), abs=1.5e-3)
    assert bands["all"].order_share == pytest.approx(0.02, abs=1e-3)
    assert bands_of(rows[: FEW - 1], np.zeros(FEW - 1)) == {}


# --- profiles by name ---------------------------------------------------------------------------------------------


def test_a_name_is_the_fit_and_says_so() -> None:
    base, found = load_profile("h100"), profile_named("h100")
    assert found.evidence == "fitted" and base.evidence != "fitted" and found.name == "h100"
    assert found.gemm.half_rows != base.gemm.half_rows
    note = f"fitted: {shipped().rows} measured runs, {shipped().counts['device']['h100']} on h100; megatron 2026"
    assert found.sources["memory_bandwidth"] == found.sources["straggle"] == note
    assert found.gemm.sources["peak"] == found.all_to_all.sources["high_bandwidth_peak"] == note
    # What was not fitted keeps its own source.
    assert found.sources.get("runtime_bytes") == base.sources.get("runtime_bytes") != note
    assert found.runtime_bytes == base.runtime_bytes


def test_a_name_with_family_and_year() -> None:
    found = profile_named("h100@fsdp-2024")
    logs = shipped().fit.logs(device="h100", family="fsdp", epoch="2024")
    expected = applied(load_profile("h100"), logs)
    assert found.memory_bandwidth == pytest.approx(expected.memory_bandwidth, rel=1e-3)
    assert found.grouped_gemm.peak == pytest.approx(expected.grouped_gemm.peak, rel=1e-3)
    assert found.sources["memory_bandwidth"].endswith("; fsdp 2024")
    assert found != profile_named("h100")
    assert profile_named("a100@megatron-deepspeed-2022").sources["memory_bandwidth"].endswith("deepspeed 2022")


def test_unfitted_is_the_profile_as_written() -> None:
    for name in profile_names():
        assert profile_named(f"{name}@unfitted") == load_profile(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("h100@fsdp-1999", ("epoch '1999'", "2021", "2026", "NAME@FAMILY-YEAR")),
        ("h100@fdsp-2024", ("family 'fdsp'", "did you mean 'fsdp'", "megatron-deepspeed")),
        ("h100@newest", ("NAME@FAMILY-YEAR", "NAME@unfitted")),
        ("h100@megatron-bridge-v0.5.9-2026", ("did you mean 'megatron-bridge-v0.", "composer-fsdp")),
        ("h999@fsdp-2024", ("h999",)),
    ],
)
def test_unknown_names_are_refused_with_those_there_are(name: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        profile_named(name)
    assert all(word in str(caught.value) for word in words)


def test_a_release_adds_to_its_family_and_year() -> None:
    found = shipped()
    release = "megatron-bridge-v0.5.0-2026"
    family, epoch = found.releases[release]
    named = profile_named(f"h100@{release}")
    assert (family, epoch) == ("megatron", "2026")
    assert named == found.profile(load_profile("h100"), family, epoch, release) != profile_named("h100@megatron-2026")
    assert release in named.sources["kernel_launch"]


def test_a_device_without_runs_keeps_its_profile_and_has_no_band() -> None:
    fabric = fabric_of(load_topology("asic-8"))
    base = load_profile("asic")
    assert default_profile(fabric) == base and profile_named("asic") == base
    assert shipped().band(base, "moe") is None and shipped().band(base, "dense") is None


def test_a_device_with_few_runs_takes_the_band_of_all_of_its_kind() -> None:
    both = shipped()
    assert "h200" not in both.bands
    assert both.band(load_profile("h200"), "dense") == both.bands["all dense"]
    assert both.band(load_profile("b200"), "moe") == both.bands["b200 moe"]


def test_a_band_says_what_it_rests_on() -> None:
    statement = Band("h100 moe", 115, 0.302, 0.094).rests_on
    assert all(words in statement for words in ("68%", "115 measured runs (h100 moe)", "30%", "9%"))
    assert [field.name for field in fields(Band)] == ["group", "rows", "share", "order_share"]


# --- answers ------------------------------------------------------------------------------------------------------


def test_an_answer_on_a_measured_device_has_a_band_and_marks_near_ties() -> None:
    answer = mapsearch.solve(**TINY, topology="hgx-h100", devices=8, top=100, proof="none")
    band = shipped().band(load_profile("h100"), "dense")
    assert answer.band is not None and band is not None
    assert (answer.band.group, answer.band.rows, answer.band.share) == (band.group, band.rows, band.share)
    assert answer.band.statement == band.rests_on
    reach = answer.mappings[0].step_time_s * (1.0 + band.order_share)
    assert answer.mappings[0].separable and len(answer.mappings) == 100
    for mapping in answer.mappings[1:]:
        assert mapping.separable == (mapping.step_time_s > reach)
    assert {mapping.separable for mapping in answer.mappings[1:]} == {True, False}


def test_an_answer_without_a_fit_has_no_band() -> None:
    for choice in ({"topology": "asic-8"}, {"topology": "hgx-h100", "devices": 8, "profile": "h100@unfitted"}):
        answer = mapsearch.solve(**TINY, **choice, top=8, proof="none")
        assert answer.band is None and all(mapping.separable for mapping in answer.mappings)


# --- the command --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "words"), [("none", "*.yaml"), ("empty", "*.yaml"), ("no-rows", "hardware.yaml")])
def test_a_folder_without_rows_is_one_sentence(
    name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "no-rows").mkdir()
    (tmp_path / "no-rows" / "rows.yaml").write_text("[]\n", encoding="utf-8")
    assert main(["calibrate", "rows", str(tmp_path / name)]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and len(shown.err.splitlines()) == 1
    assert name in shown.err and words in shown.err


@pytest.mark.slow
def test_the_shipped_file_is_what_the_published_rows_give(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "fit.yaml"
    assert main(["calibrate", "rows", str(PUBLISHED), "-o", str(target)]) == 0
    shown = capsys.readouterr().out
    assert "774 runs fitted" in shown and "Factors on the built-in profiles" in shown
    assert target.read_bytes() == FILE.read_bytes()
