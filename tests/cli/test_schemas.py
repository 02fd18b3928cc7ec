"""JSON Schemas are for editors: they accept every built-in file, and flag what the reader would refuse."""

from __future__ import annotations

import json
from importlib import resources

import answers
import fronts
import pytest
import yaml
from jsonschema import Draft202012Validator
from test_cli_explain import explanations
from test_cli_sensitivity import result as sensitivity_result

from mapsearch.comparing import compare
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.run import Run
from mapsearch.records import catalogue_names
from mapsearch.timelines import timeline

INVENTORIES, TOPOLOGIES = "mapsearch.inventories", "mapsearch.topologies"
FOLDERS = {
    "model": (INVENTORIES, "models"),
    "run": (INVENTORIES, "runs"),
    "profile": (INVENTORIES, "profiles"),
    "rollout": (INVENTORIES, "rollouts"),
    "topology": (TOPOLOGIES, ""),
}
DOCUMENTS = [(kind, *place, name) for kind, place in FOLDERS.items() for name in catalogue_names(*place)]


@pytest.fixture
def problems(mapsearch):
    def found(kind, document):
        schema = json.loads(mapsearch("schema", kind).out)
        Draft202012Validator.check_schema(schema)
        return [error.message for error in Draft202012Validator(schema).iter_errors(document)]

    return found


def read(package, folder, name):
    return yaml.safe_load((resources.files(package) / "catalogue" / folder / f"{name}.yaml").read_text("utf-8"))


@pytest.mark.parametrize(("kind", "package", "folder", "name"), DOCUMENTS)
def test_built_in_files_are_valid_and_a_misspelt_key_is_not(problems, kind, package, folder, name):
    document = read(package, folder, name)
    assert problems(kind, document) == []
    first = next(iter(document))
    renamed = {("naem" if key == first else key): value for key, value in document.items()}
    assert any("naem" in message for message in problems(kind, renamed))


def test_a_value_may_carry_its_source_at_any_depth(problems):
    topology = read(TOPOLOGIES, "", "asic")
    topology["device"]["hbm"] = {"value": "96 GB", "source": "datasheet", "note": "page 3"}
    assert problems("topology", topology) == []
    topology["device"]["hbm"] = {"value": "96 GB", "sauce": "datasheet"}
    assert problems("topology", topology) != []
    model = read(INVENTORIES, "models", "mixtral-8x7b")
    assert problems("model", {**model, "layers": {"value": 32, "source": "measured"}}) == []
    assert problems("model", {**model, "layers": {"value": "many", "source": "measured"}}) != []


def test_answers_and_reports_are_valid(problems):
    for answer in (answers.optimal(), answers.infeasible(), answers.unknown()):
        assert problems("answer", json.loads(answer.to_json())) == []
    assert problems("check", json.loads(answers.report().to_json())) == []
    for front in (fronts.front(), fronts.open_front(), fronts.empty("infeasible")):
        assert problems("front", json.loads(front.to_json())) == []
    assert problems("sensitivity", json.loads(sensitivity_result().to_json())) == []
    for found in explanations():
        assert problems("explanation", json.loads(found.to_json())) == []
    run = Run(sequence_length=4096, global_batch=64)
    drawn = timeline(Mapping(dp=8, pp=8, ep=8), model="mixtral-8x7b", run=run, topology="hgx-h100")
    assert problems("simulation", json.loads(drawn.simulation.to_json())) == []
    for pair in ((answers.optimal(), answers.infeasible()), (fronts.front(), fronts.open_front())):
        assert problems("comparison", json.loads(compare(*pair).to_json())) == []
