"""Small runs against plain loops over all of them, and their files against the commands that read them."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from tiny_cases import tiny_facts

from mapsearch.api import check
from mapsearch.cli.main import main
from mapsearch.cli.solved import read_mapping
from mapsearch.costs.estimate import point_of
from mapsearch.errors import UsageError
from mapsearch.scaling.api import scale_down
from mapsearch.scaling.choose import choose, same_quantity
from mapsearch.scaling.keeps import KEEPS, keeps_of
from mapsearch.scaling.reduced import facts_of, plans
from mapsearch.solver.problem import problem_of
from mapsearch.solver.ranking import mapping_of
from mapsearch.solver.search import search

FULL = {
    "dense part whole": ({"fix": {"tp": 2, "pp": 2, "ep": 4}}, 4, 1e5),
    "tight": ({"fix": {"tp": 2, "pp": 2, "ep": 2}}, 4, 22.0),
    "context": ({"fix": {"cp": 2, "tp": 2, "ep": 4}}, 4, 1e5),
    "two devices": ({"fix": {"tp": 2, "pp": 2}}, 2, 60.0),
}


def full_point(name):
    constraints, small, hbm_mb = FULL[name]
    facts = tiny_facts((2, 2, 4), hbm_mb=1e5, constraints=constraints)
    best = search(problem_of(facts), 1).top[0]
    tight = replace(facts, fabric=replace(facts.fabric, device=replace(facts.fabric.device, hbm_bytes=hbm_mb * 1e6)))
    return point_of(mapping_of(best), tight), small


def brute_force(full, devices):
    """Every plan with every number of layers and every placement: (kept, layers per stage, -step time) at best."""
    keeps, best = keeps_of(full), None
    for plan in plans(full, devices):
        for layers in range(1, full.facts.model.layers // full.mapping.pp + 1):
            facts = facts_of(full, plan, layers)
            if facts is None:
                continue
            # Every placement by itself: with its rows asked for, a search lists the best of each combination only.
            for candidate in every_placement(facts):
                point = point_of(candidate, facts)
                kept = sum(same_quantity(keep, full, point) for keep in keeps)
                order = (kept, layers, -point.step_time_s())
                best = order if best is None or order > best else best
    return best


def every_placement(facts):
    problem = replace(problem_of(facts), all_devices=True)
    found = search(problem, 1).top
    if not found:
        return
    base = mapping_of(found[0])
    levels = facts.fabric.level_names
    cuts = {axis: list(rows_of(getattr(base, axis), facts.fabric.fan_outs)) for axis in ("tp", "cp", "dp", "pp")}
    expert = {axis: list(rows_of(getattr(base, axis), facts.fabric.fan_outs)) for axis in ("etp", "ep", "edp")}
    for attention in itertools.product(*cuts.values()):
        if [a * b * c * d for a, b, c, d in zip(*attention, strict=True)] != list(facts.fabric.fan_outs):
            continue
        for others in itertools.product(*expert.values()):
            pipeline = attention[3]
            joined = zip(*others, pipeline, strict=True)
            if [a * b * c * d for a, b, c, d in joined] != list(facts.fabric.fan_outs):
                continue
            rows = dict(zip((*cuts, *expert), (*attention, *others), strict=True))
            placement = {axis: dict(zip(levels, row, strict=True)) for axis, row in rows.items()}
            yield base.model_copy(update={"placement": placement})


def rows_of(size, fan_outs):
    def cut(left, rest):
        if not rest:
            if left == 1:
                yield ()
            return
        for ways in range(1, rest[0] + 1):
            if rest[0] % ways == 0 and left % ways == 0:
                for more in cut(left // ways, rest[1:]):
                    yield (ways, *more)

    yield from cut(size, tuple(fan_outs))


@pytest.mark.parametrize("name", sorted(FULL))
def test_nothing_keeps_more(name):
    full, small = full_point(name)
    found = choose(full, small, (), lambda *_: None)
    best = brute_force(full, small)
    if best is None:
        assert found is None
        return
    kept, layers, step = best
    assert len(found.kept) == kept
    assert found.point.facts.model.layers == layers * found.plan.by_axis["pp"]
    assert found.point.step_time_s() == pytest.approx(-step, rel=1e-9)


def test_what_is_required_is_kept_or_nothing_is_returned():
    full, _ = full_point("context")
    for keep in keeps_of(full):
        found = choose(full, 4, (keep.name,), lambda *_: None)
        assert found is None or keep.name in found.kept
    deep, _ = full_point("tight")
    assert choose(deep, 1, ("two stages or more",), lambda *_: None) is None


def test_kernels_of_a_rank_are_the_same_kernels():
    full, _ = full_point("dense part whole")
    found = choose(full, 4, ("attention GEMM of a rank", "grouped GEMM of a rank"), lambda *_: None)
    before, after = full.facts.model, found.point.facts.model
    assert before.heads / full.mapping.tp == after.heads / found.point.mapping.tp
    assert before.moe.experts / full.mapping.ep == after.moe.experts / found.point.mapping.ep
    assert before.hidden == after.hidden


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    path = folder / "answer.json"
    asked = ["solve", "--model", "mixtral-8x7b", "--topology", "hgx-h100", "--devices", "64", "--top", "2"]
    assert main([*asked, "--sequence-length", "8192", "--format", "json", "-o", str(path), "--quiet"]) == 0
    return folder, path


def test_the_files_are_read_by_other_commands(answer, capsys):
    folder, path = answer
    out = folder / "eight"
    code = main(["scale-down", str(path), "--devices", "8", "--format", "json", "--write", str(out), "--quiet"])
    assert code == 0
    found = json.loads(capsys.readouterr().out)
    names = {name: str(out / f"{name}.yaml") for name in ("model", "run", "topology", "profile")}
    report = check(str(out / "mapping.yaml"), **names)
    assert report.feasible
    assert report.mapping.step_time_s == found["mapping"]["step_time_s"]
    assert report.mapping.peak_memory_bytes == found["mapping"]["peak_memory_bytes"]
    assert found["mapping"]["devices"] == 8 == found["devices"]
    assert {one["name"] for one in found["kept"]} <= {keep.name for keep in KEEPS}


def test_rows_of_the_contract_are_confirmed_where_both_predict_the_same(answer, capsys):
    folder, path = answer
    out = folder / "rows"
    assert main(["scale-down", str(path), "--devices", "8", "--format", "json", "--write", str(out), "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = [f"--{name}={out / name}.yaml" for name in ("model", "run", "topology", "profile")]
    contracts = []
    for asked in ([str(path)], [str(out / "mapping.yaml"), *names]):
        main(["contract", *asked, "--format", "json", "--quiet"])
        domains = json.loads(capsys.readouterr().out)["domains"]
        contracts.append({row["id"]: row["predicted"] for one in domains for row in one["rows"]})
    full, small = contracts
    assert {row["id"] for row in found["rows"]} | set(found["only_full"]) == {
        k for k, v in full.items() if v is not None
    }
    for row in found["rows"]:
        assert (row["full"], row["small"]) == (full[row["id"]], small[row["id"]])
        same = row["full"] == row["small"] or (
            not isinstance(row["full"], str) and row["full"] == pytest.approx(row["small"], rel=1e-9)
        )
        assert row["confirmed"] == same, row
    assert 0 < sum(row["confirmed"] for row in found["rows"]) < len(found["rows"])


def test_views(answer, capsys):
    _, path = answer
    for form in ("table", "md", "csv", "html"):
        assert main(["scale-down", str(path), "--devices", "8", "--format", form, "--quiet"]) == 0
        assert "two stages" in (text := capsys.readouterr().out) or "sequence length" in text


@pytest.mark.parametrize(
    "wrong, told",
    [
        (["--devices", "0"], "0"),
        (["--keep", "sequence lenght"], "sequence length"),
        (["--devices", "128"], "128 devices are asked for; the cluster has 64"),
    ],
)
def test_what_cannot_be_asked(answer, capsys, wrong, told):
    _, path = answer
    assert main(["scale-down", str(path), *wrong]) == 2
    assert told in capsys.readouterr().err


def test_a_quantity_that_the_full_run_has_not(answer):
    _, path = answer
    report = json.loads(path.read_text())["mappings"][0]
    assert report["sizes"]["cp"] == 1  # otherwise the case has to be another
    mapping = read_mapping(str(path))[0]
    with pytest.raises(UsageError, match="has no 'context-parallel block' to keep"):
        scale_down(mapping, "mixtral-8x7b", topology="hgx-h100", devices=64, small=8, keep=["context-parallel block"])
