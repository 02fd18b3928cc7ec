"""`solve` and `check` from Python: statuses, provenance, interrupts, and the same bytes for the same input."""

from __future__ import annotations

import json

import pytest
from tiny_cases import tiny_fabric, tiny_model, tiny_profile, tiny_run

import mapsearch
from mapsearch.answer import Answer, Proof
from mapsearch.axes import SIZES
from mapsearch.errors import InputError, MapsearchError, MissingFact, UsageError
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.run import Run
from mapsearch.records import validate
from mapsearch.solver import search as searching
from mapsearch.topologies.spec import Topology

SMALL = {"micro_batch": [1], "recompute": ["none"], "schedule": ["1f1b"]}


def inputs(sizes=(2, 2), *, hbm_mb=64.0, **run):
    return {
        "model": tiny_model(),
        "run": tiny_run(**{**SMALL, **run}),
        "topology": tiny_fabric(sizes, hbm_mb=hbm_mb),
        "profile": tiny_profile(),
    }


def solve(**kwargs):
    options = {"proof": "none", **kwargs}
    facts = inputs(**{name: options.pop(name) for name in list(options) if name in Run.model_fields})
    return mapsearch.solve(**{**facts, **options})


def proving(monkeypatch, status):
    def prove(problem, found, deadline, watch):
        return [Proof(backend="fake", status=status, kind="exhaustion", bound_s=found.bound_s)]

    monkeypatch.setattr("mapsearch.api.prover_of", lambda backend, certify: prove)


def test_without_a_proof_a_complete_search_is_feasible_with_gap_0():
    answer = solve(top=5)

    assert answer.status == "feasible"
    assert answer.gap == pytest.approx(0.0, abs=1e-12)
    assert answer.proofs == []
    assert [m.rank for m in answer.mappings] == [1, 2, 3, 4, 5]
    assert [m.step_time_s for m in answer.mappings] == sorted(m.step_time_s for m in answer.mappings)
    assert answer.bound_s == pytest.approx(answer.best.step_time_s, rel=1e-12)


@pytest.mark.parametrize(
    ("verdict", "status"), [("proven", "optimal"), ("not proven", "feasible"), ("disagrees", "feasible")]
)
def test_optimal_is_said_only_with_a_proof(monkeypatch, verdict, status):
    proving(monkeypatch, verdict)

    assert solve(proof="auto").status == status


def test_every_mapping_holds_every_relation_with_its_sentence():
    answer = solve(top=5, framework="megatron")
    for mapping in answer.mappings:
        assert len({margin.relation for margin in mapping.margins}) == len(mapping.margins) > 10
        assert all(margin.margin >= 0.0 and margin.reason for margin in mapping.margins)
        assert mapping.peak_memory_bytes <= mapping.memory_limit_bytes


def test_a_solved_mapping_checks_as_it_was_solved():
    given = inputs()
    for mapping in solve(top=3).mappings:
        report = mapsearch.check(mapping, **given)

        assert report.feasible
        plain = {"rank": 0, "binding": None, "binding_note": ""}
        assert report.mapping.model_copy(update=plain) == mapping.model_copy(update=plain)
        assert report.broken == []


def test_the_same_input_gives_the_same_bytes():
    assert solve(top=4).to_json() == solve(top=4).to_json()


def test_json_reads_back():
    answer = solve(top=2)

    assert Answer.model_validate(json.loads(answer.to_json())).mappings == answer.mappings


def test_nothing_fits_is_an_answer():
    answer = mapsearch.solve(**inputs(hbm_mb=20), proof="none")

    assert answer.status == "infeasible"
    assert answer.mappings == []
    assert answer.gap is None


def test_no_time_gives_unknown_and_the_bound_of_the_compute():
    answer = solve(time_limit=1e-9)

    assert answer.status == "unknown"
    assert 0.0 < answer.bound_s < solve().bound_s
    assert answer.gap is None
    assert any("time limit" in note for note in answer.notes)


def interrupt_after(monkeypatch, calls):
    """Ctrl-C in the middle of the evaluation of a block of cells."""
    real, count = searching.evaluate_block, [0]

    def evaluate(*args):
        count[0] += 1
        if count[0] > calls:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(searching, "evaluate_block", evaluate)
    monkeypatch.setattr(searching, "BLOCK", 1)


def test_an_interrupt_gives_the_best_so_far_with_a_valid_bound(monkeypatch):
    best = solve(top=40).best.step_time_s
    monkeypatch.setattr(searching, "EARLY_STEPS", 0)  # every cell has its bound before the first is evaluated
    interrupt_after(monkeypatch, 1)
    answer = solve(top=40)

    assert answer.interrupted
    assert answer.status == "feasible"
    assert 0.0 < answer.bound_s <= best * (1.0 + 1e-12)
    assert any(note.startswith("interrupted") for note in answer.notes)


def test_an_interrupt_before_all_is_bounded_keeps_the_best_and_a_weak_bound(monkeypatch):
    best = solve(top=40).best.step_time_s
    interrupt_after(monkeypatch, 1)
    answer = solve(top=40)

    assert (answer.status, answer.interrupted) == ("feasible", True)
    assert 0.0 < answer.bound_s < best
    assert answer.gap == pytest.approx(1.0 - answer.bound_s / answer.best.step_time_s)


def test_an_interrupt_before_any_mapping_is_unknown(monkeypatch):
    interrupt_after(monkeypatch, 0)
    answer = solve()

    assert answer.interrupted
    assert answer.status == "unknown"
    assert answer.mappings == []


def test_an_interrupt_while_tables_are_made_leaves_the_bound_of_the_compute():
    def stop(progress):
        raise KeyboardInterrupt

    answer = solve(progress=stop)

    assert answer.interrupted
    assert answer.status == "unknown"
    assert 0.0 < answer.bound_s < solve().bound_s


def test_an_interrupted_proof_keeps_the_ranking(monkeypatch):
    def prove(problem, found, deadline, watch):
        raise KeyboardInterrupt

    monkeypatch.setattr("mapsearch.api.prover_of", lambda backend, certify: prove)
    answer = solve(top=2, proof="auto")

    assert (answer.status, answer.interrupted, len(answer.mappings)) == ("feasible", True, 2)


def test_progress_is_reported():
    seen = []
    solve(progress=seen.append)

    assert {report.phase for report in seen} >= {"tables"}


def test_provenance_names_inputs_and_counts_what_is_assumed():
    run = validate(
        Run,
        {
            **tiny_run(**SMALL).model_dump(exclude={"sources", "reserve"}),
            "reserve": {"value": 0.1, "source": "assumed", "note": "a guess"},
        },
        file="run",
    )
    told = solve(run=run, top=1).provenance

    assert (told.model, told.run, told.topology, told.profile) == ("tiny", "tiny", "tiny", "tiny")
    assert {name: len(digest) for name, digest in told.input_sha256.items()} == dict.fromkeys(
        ("model", "run", "topology", "profile"), 64
    )
    assert "run tiny: reserve 0.1 (assumed: a guess)" in told.assumptions
    assert told.version == mapsearch.__version__
    assert "numpy" in told.libraries


def test_a_changed_input_changes_its_checksum_only():
    one, other = solve(top=1).provenance, solve(top=1, run=tiny_run(**SMALL, global_batch=16)).provenance

    assert {k for k in one.input_sha256 if one.input_sha256[k] != other.input_sha256[k]} == {"run"}


def topology(name="small", size=4):
    levels = [
        {"name": "board", "size": 2, "bandwidth": "100 GB/s", "latency": "1 us", "high_bandwidth": True},
        {"name": "rack", "size": size, "bandwidth": {"value": "25 GB/s", "source": "assumed"}, "latency": "2 us"},
    ]
    device = {"name": "small device", "hbm": "64 MB", "hbm_bandwidth": "1 TB/s", "peak": {"bf16": "10 TFLOP/s"}}
    return validate(Topology, {"name": name, "device": device, "levels": levels}, file=name)


def test_a_topology_is_scaled_to_a_number_of_devices():
    answer = solve(topology=topology(), devices=4, top=1)

    assert answer.best.devices <= 4
    assert "small is scaled to 4 devices" in answer.notes
    assert "topology small: rack bandwidth 25 GB/s (assumed)" in answer.provenance.assumptions


def test_a_device_without_a_profile_is_refused():
    with pytest.raises(MissingFact, match="no built-in profile"):
        solve(topology=topology(), profile=None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"top": 0}, "top is 0"),
        ({"proof": "maybe"}, "accepted: auto or none"),
        ({"require_proof": True}, "exclude each other"),
        ({"devices": 2}, "give a topology to scale"),
        ({"model": "moe-5x"}, "no built-in model"),
        ({"topology": "asics"}, "did you mean 'asic'"),
    ],
)
def test_slips_are_refused_with_a_sentence(arguments, words):
    with pytest.raises(MapsearchError, match=words):
        solve(**arguments)


def test_usage_errors_are_input_errors():
    assert issubclass(UsageError, InputError)


def test_check_reads_a_file_and_reports_what_is_broken(tmp_path):
    path = tmp_path / "mapping.yaml"
    path.write_text("{tp: 2, cp: 1, dp: 2, ep: 4, schedule: 1f1b, recompute: none}\n")
    report = mapsearch.check(str(path), **inputs(hbm_mb=20))

    assert not report.feasible
    assert [margin.relation for margin in report.broken] == ["hbm"]
    assert report.mapping.sizes["ep"] == 4
    assert report.broken[0].demand == pytest.approx(report.mapping.peak_memory_bytes)
    assert any("usual order" in note for note in report.notes)


def test_check_lists_relations_in_the_order_of_the_list():
    from mapsearch.constraints import ALL

    report = mapsearch.check(Mapping(dp=4, edp=4), **inputs())

    assert [margin.relation for margin in report.margins][: len(ALL)] == [relation.name for relation in ALL]


def test_check_of_more_stages_than_layers_still_names_the_relation():
    report = mapsearch.check(Mapping(pp=8), **inputs((2, 4)))

    assert not report.feasible
    assert report.mapping is None
    assert "layers_fill_stages" in {margin.relation for margin in report.broken}
    assert any("4 layers cannot fill 8 pipeline chunks" in note for note in report.notes)


def test_check_refuses_a_mapping_that_does_not_fit_the_cluster():
    with pytest.raises(InputError, match="uses 16 devices"):
        mapsearch.check(Mapping(dp=16, edp=16), **inputs())


def test_sizes_and_choices_make_the_mapping_again():
    best = solve(top=1).best
    again = validate(Mapping, {**best.sizes, **best.choices, "placement": best.placement}, file="again")

    assert again.devices == best.devices
    assert {axis: best.sizes[axis] for axis in SIZES} == {axis: getattr(again, axis) for axis in SIZES}


@pytest.mark.parametrize("backend", ["exhaustive", "cpsat", "milp"])
def test_every_backend_proves_a_small_ranking(backend):
    answer = solve(proof="auto", backend=backend, top=3)

    assert answer.status == "optimal"
    assert [proof.status for proof in answer.proofs] == ["proven"]
    assert answer.to_json() == solve(proof="auto", backend=backend, top=3).to_json()
