"""`mapsearch model` and `mapsearch schema`: what they print and how they refuse."""

import json
from pathlib import Path

import pytest
import yaml

from mapsearch.cli.main import main
from mapsearch.cli.schema import DOCUMENTS
from mapsearch.inventories.models import load_model, model_names
from mapsearch.reports.models import ledger_lines, model_ledger


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_list_names_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "model", "list")
    assert code == 0 and "\x1b" not in out
    assert [line.split()[0] for line in out.splitlines()[1:]] == model_names()
    code, out, _ = run(capsys, "model", "list", "--format", "json")
    assert [entry["name"] for entry in json.loads(out)] == model_names()


def test_show_prints_the_ledger_on_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """The numbers of FORMULAS 8 and 1.5 as a person reads them."""
    code, out, _ = run(capsys, "model", "show", "moe-5t")
    assert code == 0 and "\x1b" not in out and len(out.splitlines()) <= 45
    assert max(len(line) for line in out.splitlines()) <= 120
    for text in (
        "4.959 T",
        "235.93 B",
        "0.62 %",
        "1,280 in all",
        "6 + 12/d",
        "2,176.6 G",
        "320 KiB per token",
        "40 GiB",
    ):
        assert text in out


def test_states_are_the_rows_of_the_sheet() -> None:
    """FORMULAS 3.6: what every rank keeps, and what is divided, for ZeRO 0 to 3."""
    rows = {row.recipe: row for row in model_ledger(load_model("moe-5t")).states}
    assert rows["BF16 weights, FP32 gradients"].zero == ((18, 0), (6, 12), (2, 16), (0, 18))
    assert rows["BF16 weights and gradients"].zero == ((16, 0), (4, 12), (2, 14), (0, 16))
    assert rows["BF16 moments, FP32 gradients"].zero == ((14, 0), (6, 8), (2, 12), (0, 14))
    assert rows["FP16 weights and gradients"].zero[:2] == ((20, 0), (4, 16))
    assert rows["FP32 weights and gradients"].zero[:2] == ((16, 0), (8, 8))
    assert rows["FP8 compute, BF16 weights kept"].zero[1] == (8, 12)
    assert rows["FP8 weights only"].zero[1] == (5, 12)


def test_state_totals_count_mtp_modules() -> None:
    """682.636 B of DeepSeek-V3 with its MTP module (FORMULAS 3.1), at 18 bytes."""
    total = model_ledger(load_model("deepseek-v3")).states[0].total_bytes
    assert total / 18e9 == pytest.approx(682.636, abs=5e-4)


def test_five_trillion_parameters_need_1_25_tb_on_64_devices() -> None:
    """FORMULAS 1.2: 80 TB and 90 TB at 5T; 1.25 and 1.40625 TB per device at W = 64; the devices states alone fill."""
    shown = model_ledger(load_model("moe-5t"))
    by_bytes = {row.bytes_per_parameter: row.total_bytes / shown.parameters.total * 5e12 for row in shown.states}
    assert by_bytes[16.0] == pytest.approx(80e12) and by_bytes[18.0] == pytest.approx(90e12)
    assert by_bytes[16.0] / 64 == pytest.approx(1.25e12) and by_bytes[18.0] / 64 == pytest.approx(1.40625e12)
    assert by_bytes[16.0] / 2**40 == pytest.approx(72.76, abs=5e-3)
    floors = [-(-80e12 // (0.85 * memory)) for memory in (80e9, 141e9, 192e9, 288e9)]
    assert floors == [1177, 668, 491, 327]


@pytest.mark.parametrize("format_", ["json", "yaml"])
def test_show_as_data(capsys: pytest.CaptureFixture[str], format_: str) -> None:
    arguments = ("model", "show", "mixtral-8x7b", "--sequence-length", "1000", "--format", format_)
    code, out, _ = run(capsys, *arguments)
    data = yaml.safe_load(out)
    assert code == 0 and data["schema"] == "mapsearch.model-ledger/1"
    assert [row["sequence_length"] for row in data["lengths"]] == [1000]
    assert data["parameters"]["total"] == sum(data["parameters"]["parts"].values())
    assert data["lengths"][0]["kv_cache_bytes"] == 1000 * 32 * 2 * 8 * 128 * 2


@pytest.mark.parametrize("name", ["moe-5t", "deepseek-v3", "gpt-oss-120b"])
def test_everything_fits_eighty_columns(name: str) -> None:
    assert max(line.cell_len for line in ledger_lines(model_ledger(load_model(name)), width=80)) <= 80


def test_convert_completes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "grok.json", tmp_path / "grok.yaml"
    source.write_text(
        json.dumps(
            {
                "emb_size": 64, "num_q_heads": 8, "num_kv_heads": 2, "key_size": 8, "num_layers": 4, "vocab_size": 512,
                "num_experts": 8, "num_selected_experts": 2, "widening_factor": 8,
            }
        )
    )  # fmt: skip
    code, _, err = run(capsys, "model", "show", str(source))
    assert code == 2 and "model convert FILE --set tie_word_embeddings=VALUE" in err and err.count("\n") == 1
    settings = ("--set", "tie_word_embeddings=true", "--set", "hidden_act=geglu", "--set", "intermediate_size=344")
    code, out, err = run(capsys, "model", "convert", str(source), *settings, "-o", str(target))
    assert (code, out) == (0, "") and "written to" in err
    model = load_model(str(target))
    assert model.tied_embeddings and model.moe is not None and model.moe.expert_ffn == 344


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "moe-5"), "did you mean 'moe-5t'"),
        (("show", "moe-5t", "--set", "layers"), "write it as --set"),
        (("show", "moe-5t", "--set", "layers=2", "--set", "layers=3"), "given twice"),
        (("show", "moe-5t", "--set", "layers=-2"), "layers"),
        (("show", "moe-5t", "--set", "layerz=2"), "did you mean 'layers'"),
        (("show", "moe-5t", "--set", "layers=[1"), "not valid YAML"),
        (("show", "moe-5t", "--sequence-length", "0"), "sequence-length"),
        (("show", "/"), "is a directory"),
        (("show",), "NAME|FILE"),
    ],
)
def test_mistakes_are_one_sentence(arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "model", *arguments)
    assert (code, out) == (2, "") and words in err and err.count("\n") == 1


@pytest.mark.parametrize("document", list(DOCUMENTS))
def test_schema(document: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "schema", document)
    schema = json.loads(out)
    assert code == 0 and schema["type"] == "object" and schema["properties"] and "2020-12" in schema["$schema"]


def test_schema_of_nothing_known(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "schema", "cluster")
    assert code == 2 and "topology" in err
