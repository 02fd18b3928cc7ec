"""Items as contents: keys, changed fields, documents beside the sweep file, and documents that cannot be used."""

from __future__ import annotations

import json

import pytest
from tiny_sweeps import BASE

from mapsearch.errors import InputError, UnknownName
from mapsearch.sweeps.resolve import Reader
from mapsearch.sweeps.run import plan_of


@pytest.fixture
def reader(folder):
    return Reader(folder.path)


def inputs(reader, **settings):
    return json.loads(reader.inputs(reader.item({**BASE, **settings})))


def test_the_key_follows_the_contents(folder, reader):
    key = reader.item(BASE).key
    assert key == Reader(folder.path).item(dict(reversed(BASE.items()))).key
    assert len({key, *(reader.item({**BASE, "devices": n}).key for n in (1, 2))}) == 3
    renamed = folder.path / "other.yaml"
    renamed.write_text("# the same run\n" + (folder.path / "run.yaml").read_text())
    assert reader.item({**BASE, "run": "other.yaml"}).key == key
    (folder.path / "run.yaml").write_text(renamed.read_text().replace("global_batch: 8", "global_batch: 16"))
    assert Reader(folder.path).item(BASE).key != key


def test_a_citation_changes_no_key(folder, reader):
    key = reader.item(BASE).key
    run = folder.path / "run.yaml"
    run.write_text(run.read_text().replace("global_batch: 8", "global_batch: {value: 8, source: measured}"))
    assert Reader(folder.path).item(BASE).key == key


def test_fields_at_any_depth(reader):
    given = inputs(
        reader,
        **{
            "run.sequence_length": 2048,
            "run.routing.capacity_factor": 2.0,
            "model.moe.experts": 16,
            "topology.device.hbm": "48 GB",
            "topology.levels.board.bandwidth": "50 GB/s",
            "topology.levels.0.latency": "1 us",
            "profile.memory_bandwidth": 0.5,
        },
    )
    assert given["run"]["sequence_length"] == 2048
    assert given["run"]["routing"]["capacity_factor"] == 2.0
    assert given["model"]["moe"]["experts"] == 16
    assert given["topology"]["device"]["hbm"] == "48 GB"
    assert (given["topology"]["levels"][0]["bandwidth"], given["topology"]["levels"][0]["latency"]) == (
        "50 GB/s",
        "1 us",
    )
    assert given["profile"]["memory_bandwidth"] == 0.5
    # A new value does not keep the word for where the old one came from.
    assert "hbm" not in given["topology"]["device"]["sources"]


def test_constraints_join_those_of_the_run(folder):
    run = folder.path / "run.yaml"
    run.write_text(run.read_text().rstrip("}\n") + ", constraints: {fix: {tp: 2, pp: 1}}}\n")
    given = inputs(Reader(folder.path), **{"fix.tp": 4, "allow.ep": [2, 4], "inside.board": ["ep"], "at_most.cp": 2})
    found = given["run"]["constraints"]
    assert found["fix"] == {"tp": 4, "pp": 1}
    assert (found["allow"], found["inside"], found["at_most"]) == ({"ep": [2, 4]}, {"board": ["ep"]}, {"cp": 2.0})


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"model": "moe-5tt"}, "moe-5tt: no such file, and no built-in model of that name (did you mean 'moe-5t'?)"),
        ({"profile": "h100@fsdp-1999"}, "no measured run is of epoch '1999'"),
    ],
)
def test_names_that_do_not_exist_end_the_sweep(reader, settings, told):
    with pytest.raises(UnknownName) as refused:
        reader.item({**BASE, **settings})
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"run.precision": "bf17"}, "with run.precision: precision: input should be"),
        ({"topology.levels.rack.bandwidth": "1 GB/s"}, "the list has no 'rack'; it has board"),
        ({"model.layers.first": 1}, "there is nothing inside the value 4"),
    ],
)
def test_what_an_item_cannot_read_is_the_items_own_failure(reader, settings, told):
    item = reader.item({**BASE, **settings})
    assert told in str(item.problem)


def test_equal_inputs_are_one_item(folder):
    (folder.path / "same.yaml").write_text((folder.path / "run.yaml").read_text())
    plan = plan_of(folder.sweep(grid={"run": ["run.yaml", "same.yaml"], "devices": [1, 2]}))
    assert [item.settings["devices"] for item in plan.items] == [1, 2]
    assert plan.remarks == ["run once, since an earlier item has the same inputs: 2 items"]


def test_a_sweep_of_which_nothing_can_be_read_is_refused(folder):
    with pytest.raises(InputError, match="precision"):
        plan_of(folder.sweep(grid={"run.precision": ["bf17", "bf18"]}))


def test_an_unknown_name_names_the_sweep_file(folder):
    with pytest.raises(UnknownName, match=r"sweep\.yaml: nope: no such file"):
        plan_of(folder.sweep(grid={"topology": ["nope"]}))
