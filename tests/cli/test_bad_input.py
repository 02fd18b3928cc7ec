"""Malformed input: exit 2 and one sentence that names the file or the option; never a traceback."""

from __future__ import annotations

import json
import random

import answers
import pytest
import yaml

RUN = "name: small\nsequence_length: 4096\nglobal_batch: 64\n"
MAPPING = "tp: 8\ndp: 4\nep: 32\n"
MODEL = (
    "name: toy\nlayers: 4\nhidden: 64\nheads: 4\nkv_heads: 2\nhead_dim: 16\nffn: 128\nvocab: 1000\n"
    "moe: {experts: 8, top_k: 2, expert_ffn: 32}\n"
)
LEVELS = (
    "name: toy\ndevice: {name: X, hbm: 96 GB, hbm_bandwidth: 2 TB/s, peak: {bf16: 400 TFLOP/s}}\n"
    "levels: [{name: board, size: 8, bandwidth: 100 GB/s, latency: 3 us}]\n"
)
GRAPH = (
    "name: toy\ndevice: {name: X, hbm: 96 GB, hbm_bandwidth: 2 TB/s, peak: {bf16: 400 TFLOP/s}}\n"
    "nodes: [{id: a}, {id: b}, {id: s, type: switch}]\n"
    "links: [{a: a, b: s, bandwidth: 50 GB/s}, {a: b, b: s, bandwidth: 50 GB/s}]\n"
)
DOCUMENTS = {"run": RUN, "mapping": MAPPING, "model": MODEL, "topology": LEVELS}


def arguments(kind, path):
    return {
        "run": ("solve", "--run", path),
        "mapping": ("check", path),
        "model": ("model", "show", path),
        "topology": ("topology", "validate", path),
    }[kind]


def refused(result, *names):
    """Exit 2, nothing on stdout, and one helpful line."""
    assert result.code == 2, (result.out, result.err)
    assert result.out == ""
    assert result.err.count("\n") == 1, result.err
    assert result.err.startswith("mapsearch: ")
    assert "Traceback" not in result.err
    assert 20 < len(result.err) < 900
    for name in names:
        assert str(name).lower() in result.err.lower(), result.err


BROKEN_FILES = {
    "empty": (b"", "empty"),
    "blanks": (b" \n\n", "empty"),
    "comment only": (b"# nothing\n", "nothing"),
    "latin-1": ("name: caf\xe9\n".encode("latin-1"), "UTF-8"),
    "utf-16": ("name: toy\n".encode("utf-16"), "UTF-8"),
    "binary": (bytes(range(256)), "UTF-8"),
    "control characters": (b"name: \x00\x01\n", "YAML"),
    "alias bomb": (b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nname: *c\n", "alias"),
    "endless alias": (b"a: &a [*a]\n", "alias"),
    "custom tag": (b"name: !secret value\n", "tag"),
    "python object": (b"name: !!python/object/apply:os.system ['true']\n", "tag"),
    "tabs": (b"name: toy\nlayers:\n\t- 1\n", "line 3"),
    "duplicate key": (b"name: a\nname: b\n", "twice"),
    "open bracket": (b"name: [1, 2\n", "line"),
    "deep nesting": (b"[" * 500 + b"]" * 500, "deep"),
    "list": (b"- name: toy\n", "a list"),
    "scalar": (b"just words\n", "text"),
    "null": (b"null\n", "nothing"),
    "number": (b"42\n", "int"),
    "not a number": (b"name: toy\nlayers: .nan\n", "finite"),
    "infinite": (b"name: toy\nlayers: .inf\n", "finite"),
    "two documents": (b"name: a\n---\nname: b\n", "document"),
    "key that is a list": (b"? [a, b]\n: c\n", "key"),
    "merge key": (b"<<: {name: toy}\n", "<<"),
    "five thousand digits": (b"name: toy\nlayers: " + b"9" * 5000 + b"\n", "digit"),
    "unknown key": (b"naem: toy\n", "naem"),
}


@pytest.mark.parametrize("kind", DOCUMENTS)
@pytest.mark.parametrize("case", BROKEN_FILES)
def test_broken_files(mapsearch, tmp_path, api, kind, case):
    content, hint = BROKEN_FILES[case]
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    refused(mapsearch(*arguments(kind, path)), "broken.yaml", hint)


@pytest.mark.parametrize("kind", DOCUMENTS)
@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"{", "JSON"),
        (b'{"name": "a", "name": "b"}', "twice"),
        (b'{"name": "toy", "layers": NaN}', "finite"),
        (b'{"name": "toy", "layers": 1e999}', "finite"),
        (b"[" * 100_000, "JSON"),
        (b'{"name": "toy"} trailing', "JSON"),
    ],
)
def test_broken_json(mapsearch, tmp_path, api, kind, content, hint):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    refused(mapsearch(*arguments(kind, path)), "broken.json", hint)


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_folder_missing_file_and_unreadable_name(mapsearch, tmp_path, api, kind):
    refused(mapsearch(*arguments(kind, tmp_path)), tmp_path.name, "directory")
    refused(mapsearch(*arguments(kind, tmp_path / "none.yaml")), "none.yaml", "no such file")
    refused(mapsearch(*arguments(kind, tmp_path / ("x" * 300))), "xxx")


@pytest.mark.parametrize(
    ("kind", "name", "near"),
    [("run", "long-contxt-128k", "long-context-128k"), ("model", "moe5t", "moe-5t"), ("topology", "asik", "asic")],
)
def test_a_name_that_is_not_built_in(mapsearch, api, kind, name, near):
    refused(mapsearch(*arguments(kind, name)), name, f"did you mean '{near}'")


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ("sequence_length: -4096", ["sequence_length", "greater than 0"]),
        ("sequence_length: 0", ["sequence_length"]),
        ("sequence_length: 4096.5", ["sequence_length", "integer"]),
        ("sequence_length: many", ["sequence_length", "integer"]),
        ("sequence_length: 9999999999999999999999", ["sequence_length"]),
        ("sequence_length: [4096]", ["sequence_length"]),
        ("sequence_length: null", ["sequence_length"]),
        ("global_batch: '64 sequences'", ["global_batch"]),
        ("sequence_lenght: 8192", ["sequence_lenght", "did you mean 'sequence_length'"]),
        ("precision: fp7", ["precision", "bf16"]),
        ("framework: megatrn", ["framework", "megatron"]),
        ("reserve: 1.5", ["reserve"]),
        ("reserve: 15 %", ["reserve"]),
        ("exposed_limit: 0", ["exposed_limit"]),
        ("exposed_limit_by_class: {tq: 0.1}", ["exposed_limit_by_class", "tq"]),
        ("micro_batch: []", ["micro_batch"]),
        ("micro_batch: [1, 1]", ["micro_batch", "twice"]),
        ("micro_batch: 1", ["micro_batch", "list"]),
        ("vpp: [0]", ["vpp"]),
        ("zero: [4]", ["zero"]),
        ("schedule: [2f2b]", ["schedule", "1f1b"]),
        ("schedule: [interleavd]", ["schedule", "did you mean 'interleaved'"]),
        ("recompute: [norm+actvation]", ["recompute", "did you mean 'activation'"]),
        ("cp_kind: [rings]", ["cp_kind", "ring"]),
        ("dispatcher: [deepep]", ["dispatcher", "deduplicated"]),
        ("offload: [weights]", ["offload", "optimizer"]),
        ("offload: [nvme]", ["offload", "optimizer+nvme", "activations+nvme"]),
        ("routing: {capacity_factor: 0.5}", ["routing.capacity_factor"]),
        ("routing: {capacity: 2}", ["routing.capacity", "capacity_factor"]),
        ("routing: 1.25", ["routing"]),
        ("state: {weight_bytes: -2}", ["state.weight_bytes"]),
        ("overlap: {tp: maybe}", ["overlap.tp"]),
        ("overlap: {param_gather: maybe}", ["overlap.param_gather", "true, false, or [true, false]"]),
        ("overlap: {expert_all_to_all: [true, true]}", ["overlap.expert_all_to_all", "twice"]),
        ("placement: {ep: outside}", ["placement.ep", "inside"]),
        ("placement: {exp: inside}", ["placement", "exp"]),
        ("constraints: {fix: {tq: 8}}", ["constraints", "tq", "axes:"]),
        ("constraints: {fix: {tp: eight}}", ["constraints", "whole number"]),
        ("constraints: {fix: {tp: 0}}", ["constraints", "at least 1"]),
        ("constraints: {allow: {ep: 32}}", ["constraints.allow.ep"]),
        ("constraints: {inside: {rack: [schedule]}}", ["constraints", "schedule"]),
        ("constraints: {atmost: {pp: 8}}", ["constraints.atmost", "did you mean 'at_most'"]),
    ],
)
def test_malformed_runs(mapsearch, tmp_path, api, lines, names):
    path = tmp_path / "bad-run.yaml"
    key = lines.partition(":")[0]
    path.write_text("".join(f"{line}\n" for line in RUN.splitlines() if not line.startswith(f"{key}:")) + lines)
    refused(mapsearch("solve", "--run", path), "bad-run.yaml", *names)


@pytest.mark.parametrize("key", ["sequence_length", "global_batch"])
def test_a_run_without_a_needed_key(mapsearch, tmp_path, api, key):
    path = tmp_path / "bad-run.yaml"
    path.write_text("".join(f"{line}\n" for line in RUN.splitlines() if not line.startswith(key)))
    refused(mapsearch("solve", "--run", path), "bad-run.yaml", key, "missing")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tp: 8\nep: 4", ["8", "4", "both grids"]),
        ("tp: 0", ["tp"]),
        ("tp: -8", ["tp"]),
        ("tp: eight", ["tp"]),
        ("tp: true", ["tp"]),
        ("tp: 8.5", ["tp"]),
        ("tpp: 8", ["tpp", "did you mean 'tp'"]),
        ("zero: 7", ["zero"]),
        ("schedule: two", ["schedule", "1f1b"]),
        ("recompute: fully", ["recompute", "full"]),
        ("tp: 8\nep: 8\nplacement: {tp: {board: 4}}", ["placement.tp", "4", "8"]),
        ("tp: 8\nep: 8\nplacement: {tp: {board: 0}}", ["placement.tp.board"]),
        ("tp: 8\nep: 8\nplacement: {tq: {board: 8}}", ["placement", "tq"]),
        ("tp: 8\nep: 8\nplacement: {tp: 8}", ["placement.tp"]),
        ("placement: [tp]", ["placement"]),
        ("schema: mapsearch.answer/1", ["missing"]),
    ],
)
def test_malformed_mappings(mapsearch, tmp_path, api, text, names):
    path = tmp_path / "bad-mapping.yaml"
    path.write_text(text)
    refused(mapsearch("check", path), "bad-mapping.yaml", *names)


@pytest.mark.parametrize(
    ("answer", "suffix", "hint"),
    [
        (answers.optimal(), "#99", "no mapping of rank 99"),
        (answers.optimal(), "#first", "whole number"),
        (answers.infeasible(), "", "infeasible"),
    ],
)
def test_answers_without_that_mapping(mapsearch, tmp_path, api, answer, suffix, hint):
    path = tmp_path / "answer.json"
    path.write_text(answer.to_json())
    refused(mapsearch("check", f"{path}{suffix}"), "answer.json", hint)


def test_a_rank_of_a_plain_mapping(mapsearch, tmp_path, api):
    path = tmp_path / "mapping.yaml"
    path.write_text(MAPPING)
    refused(mapsearch("check", f"{path}#1"), "mapping.yaml", "not an answer")


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        ("layers: -4", ["layers"]),
        ("layers: 1e30", ["layers"]),
        ("layers: 10000000", ["layers", "10000"]),
        ("hidden: 64 units", ["hidden"]),
        ("heads: 3", ["heads"]),
        ("vocab: []", ["vocab"]),
        ("dense_first: 9", ["dense_first", "4"]),
        ("attention: flash", ["attention", "gqa"]),
        ("attention: mla", ["mla"]),
        ("moe: {experts: 8, top_k: 9, expert_ffn: 32}", ["top_k", "9", "8"]),
        ("moe: {experts: 8, topk: 2, expert_ffn: 32}", ["moe.topk", "did you mean 'top_k'"]),
        ("moe: {experts: 8, top_k: 2}", ["moe.expert_ffn", "missing"]),
        ("moe: eight", ["moe"]),
        ("sliding_window: {size: 128, layers: 5}", ["sliding_window", "5", "4"]),
        ("hiden: 64", ["hiden", "did you mean 'hidden'"]),
    ],
)
def test_malformed_models(mapsearch, tmp_path, lines, names):
    path = tmp_path / "bad-model.yaml"
    key = lines.partition(":")[0]
    path.write_text("".join(f"{line}\n" for line in MODEL.splitlines() if not line.startswith(f"{key}:")) + lines)
    refused(mapsearch("model", "show", path), "bad-model.yaml", *names)


@pytest.mark.parametrize("config", [{"model_type": "mamba"}, {"model_type": "llama", "hidden_size": 64}, {"a": 1}])
def test_model_configs_that_cannot_be_represented(mapsearch, tmp_path, config):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    refused(mapsearch("model", "show", path), "config.json")


@pytest.mark.parametrize(
    ("base", "old", "new", "names"),
    [
        (LEVELS, "96 GB", "96", ["device.hbm", "no unit", "96 GB"]),
        (LEVELS, "96 GB", "96 Gb", ["device.hbm", "unit"]),
        (LEVELS, "96 GB", "'96'", ["device.hbm", "no unit"]),
        (LEVELS, "96 GB", "-96 GB", ["device.hbm", "negative"]),
        (LEVELS, "96 GB", "0 GB", ["device.hbm"]),
        (LEVELS, "96 GB", "1e400 GB", ["device.hbm", "finite"]),
        (LEVELS, "96 GB", "nan GB", ["device.hbm"]),
        (LEVELS, "96 GB", "lots", ["device.hbm"]),
        (LEVELS, "96 GB", "true", ["device.hbm"]),
        (LEVELS, "96 GB", "[96, GB]", ["device.hbm"]),
        (LEVELS, "100 GB/s", "100 GB", ["bandwidth", "unit", "50 GB/s"]),
        (LEVELS, "100 GB/s", "100", ["bandwidth", "no unit"]),
        (LEVELS, "100 GB/s", "0 GB/s", ["bandwidth"]),
        (LEVELS, "3 us", "3", ["latency", "no unit"]),
        (LEVELS, "3 us", "-3 us", ["latency", "negative"]),
        (LEVELS, "3 us", "3 GB", ["latency", "unit"]),
        (LEVELS, "400 TFLOP/s", "400 TB/s", ["peak", "unit"]),
        (LEVELS, "{bf16: 400 TFLOP/s}", "{}", ["device.peak"]),
        (LEVELS, "size: 8", "size: 0", ["size"]),
        (LEVELS, "size: 8", "size: -8", ["size"]),
        (LEVELS, "size: 8", "size: 99999999999", ["size"]),
        (LEVELS, "size: 8", "size: eight", ["size"]),
        (LEVELS, "size: 8", "size: 8, kind: mesh", ["kind", "full_mesh"]),
        (LEVELS, "size: 8", "size: 8, kind: torus", ["torus", "dims"]),
        (LEVELS, "size: 8", "size: 8, kind: torus, dims: [3, 3]", ["dims", "9", "8"]),
        (LEVELS, "size: 8", "size: 8, direction: up", ["direction", "one_way"]),
        (LEVELS, "size: 8", "sise: 8", ["sise", "did you mean 'size'"]),
        (LEVELS, "levels: [", "levels: []\nothers: [", ["others"]),
        (
            LEVELS,
            "latency: 3 us}]",
            "latency: 3 us}, {name: board, size: 2, bandwidth: 1 GB/s, latency: 1 us}]",
            ["board", "2 times"],
        ),
        (LEVELS, "levels:", "down: [board9]\nlevels:", ["down", "board9"]),
        (LEVELS, "device:", "devise:", ["devise", "did you mean 'device'"]),
        (LEVELS, "levels:", "nodes: [{id: a}]\nlevels:", ["both levels and nodes"]),
        (GRAPH, "b: s, bandwidth: 50 GB/s}]", "b: t, bandwidth: 50 GB/s}]", ["'t'"]),
        (GRAPH, ", {a: b, b: s, bandwidth: 50 GB/s}", "", ["b"]),
        (GRAPH, "{id: b}", "{id: a}", ["'a'", "2 times"]),
        (GRAPH, "{a: a, b: s,", "{a: a, b: a,", ["itself"]),
        (GRAPH, "{id: a}, {id: b}", "{id: a, type: switch}, {id: b, type: switch}", ["no devices"]),
        (GRAPH, "links:", "down: [{a: a, b: b}]\nlinks:", ["a and b"]),
        (GRAPH, "nodes: [{id: a}, {id: b}, {id: s, type: switch}]", "nodes: []", ["levels"]),
        (GRAPH, "type: switch", "type: router", ["type", "switch"]),
    ],
)
def test_malformed_topologies(mapsearch, tmp_path, base, old, new, names):
    assert old in base
    path = tmp_path / "bad-topology.yaml"
    path.write_text(base.replace(old, new))
    refused(mapsearch("topology", "validate", path), "bad-topology.yaml", *names)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--top", "0"], ["--top"]),
        (["--top", "ten"], ["--top"]),
        (["--top", "-1"], ["--top"]),
        (["--devices", "0"], ["--devices"]),
        (["--devices", "-8"], ["--devices"]),
        (["--devices", "99999999999999"], ["--devices"]),
        (["--time-limit", "0"], ["--time-limit", "positive"]),
        (["--time-limit", "nan"], ["--time-limit", "finite"]),
        (["--time-limit", "inf"], ["--time-limit", "finite"]),
        (["--time-limit", "soon"], ["--time-limit", "number"]),
        (["--backend", "gurobi"], ["--backend", "cpsat"]),
        (["--proof", "yes"], ["--proof", "none"]),
        (["--format", "xml"], ["--format", "json"]),
        (["--precision", "fp4"], ["--precision", "bf16"]),
        (["--framework", "jax"], ["--framework", "megatron"]),
        (["--sequence-length", "0"], ["--sequence-length"]),
        (["--sequence-length", "128K"], ["--sequence-length"]),
        (["--global-batch", "-1"], ["--global-batch"]),
        (["--fix", "tp"], ["--fix", "tp=8"]),
        (["--fix", "tp="], ["--fix", "tp=8"]),
        (["--fix", "=8"], ["--fix", "tp=8"]),
        (["--fix", "tq=8"], ["--fix", "tq"]),
        (["--fix", "tp=eight"], ["--fix", "whole number"]),
        (["--fix", "schedule=2f2b"], ["--fix", "1f1b"]),
        (["--allow", "ep=32,x"], ["--allow", "whole number"]),
        (["--allow", "ep=32,,64"], ["--allow", "whole number"]),
        (["--at-most", "schedule=3"], ["--at-most", "order"]),
        (["--at-most", "pp=many"], ["--at-most", "whole number"]),
        (["--at-least", "dp=-2"], ["--at-least", "whole number"]),
        (["--inside", "rack=ep"], ["--inside", "rack:ep"]),
        (["--inside", "rack:"], ["--inside", "rack:ep"]),
        (["--inside", "rack:experts"], ["--inside", "experts"]),
        (["--output", "/"], ["--output", "directory"]),
        (["--output", "no/such/folder/a.json"], ["--output", "does not exist"]),
        (["--model", ""], ["--model", "empty"]),
        (["--tpo", "3"], ["--tpo", "--top"]),
    ],
)
def test_bad_options(mapsearch, run_file, api, options, names):
    refused(mapsearch("solve", "--run", run_file, *options), *names)
    assert api.calls == []


ODD = (
    *(
        None,
        True,
        0,
        -1,
        3.5,
        1e308,
        10**30,
        2**63,
        "",
        "x",
        "8",
        "96 GB",
        "-1 GB",
        "50 GB/s",
        "nan",
        "x" * 5000,
        "\u2028",
    ),
    *([], {}, [1], ["a"], [[1]], [None], {"a": 1}, {"value": 3}, {"value": {"value": 1}}, {"sources": 5}, {1: 2}),
)


def places(document, path=()):
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


@pytest.mark.parametrize("kind", [*DOCUMENTS, "graph"])
def test_odd_values_anywhere_are_read_or_refused_but_never_a_crash(mapsearch, tmp_path, api, kind):
    text = GRAPH if kind == "graph" else DOCUMENTS[kind]
    command = "topology" if kind == "graph" else kind
    path = tmp_path / "odd.yaml"
    chooser = random.Random(kind)
    codes = []
    for _ in range(60):
        document = yaml.safe_load(text)
        *above, key = chooser.choice(list(places(document)))
        owner = document
        for part in above:
            owner = owner[part]
        owner[key] = chooser.choice(ODD)
        path.write_text(yaml.safe_dump(document))
        result = mapsearch(*arguments(command, path))
        codes.append(result.code)
        if result.code:
            refused(result, "odd.yaml")
    assert set(codes) == {0, 2}


def test_the_good_documents_are_read(mapsearch, tmp_path, api):
    """The cases above differ from these by their fault alone."""
    for kind in ("run", "mapping", "model", "topology"):
        path = tmp_path / f"{kind}.yaml"
        path.write_text(DOCUMENTS[kind])
        extra = ("--run", tmp_path / "run.yaml") if kind == "mapping" else ()
        assert mapsearch(*arguments(kind, path), *extra).code == 0
    path = tmp_path / "graph.yaml"
    path.write_text(GRAPH)
    assert mapsearch("topology", "validate", path).code == 0


def test_bits_for_bytes_draw_a_warning_and_go_on(mapsearch, tmp_path):
    path = tmp_path / "bits.yaml"
    path.write_text(
        "name: bits\ndevice: {name: H100, hbm: 80 GB, hbm_bandwidth: 3.35 TB/s, peak: {bf16: 989 TFLOP/s}}\n"
        "levels: [{name: node, size: 8, bandwidth: 450 GB/s, latency: 3 us},"
        " {name: fabric, size: 4, bandwidth: 400 GB/s, latency: 6 us}]\n"
    )
    result = mapsearch("topology", "validate", path)
    assert result.code == 0
    assert "400" in result.out + result.err
    assert "bits" in (result.out + result.err).replace("bits.yaml", "").replace("name: bits", "").lower()


@pytest.mark.parametrize("option", ["--model", "--topology", "--profile"])
@pytest.mark.parametrize("case", ["empty", "binary", "alias bomb", "duplicate key", "unknown key", "list"])
def test_solve_refuses_the_same_files_as_its_inputs(mapsearch, tmp_path, run_file, option, case):
    pytest.importorskip("mapsearch.api")
    content, hint = BROKEN_FILES[case]
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    refused(mapsearch("solve", "--run", run_file, option, path), "broken.yaml", hint)
