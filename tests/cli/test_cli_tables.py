"""The table view: fits its width, keeps its facts at every width, degrades to ASCII and to no colour."""

from __future__ import annotations

import answers
import pytest
from rich.cells import cell_len

from mapsearch.answer import Change, Conflict, JointRelaxation, Price
from mapsearch.progress import Progress
from mapsearch.reports import human
from mapsearch.reports.flat import markdown_text
from mapsearch.reports.layout import flowed, packed, to_ascii
from mapsearch.reports.tables import solve_lines
from mapsearch.reports.verdicts import check_lines

WIDTHS = (60, 80, 100, 120, 200)


def plain(lines):
    return "\n".join(line.plain for line in lines)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["optimal", "feasible", "infeasible", "unknown"])
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_wider_than_the_screen(width, name, verbose):
    text = plain(solve_lines(getattr(answers, name)(), width=width, verbose=verbose))
    assert max(map(cell_len, text.splitlines())) <= width


@pytest.mark.parametrize(
    ("step_time_s", "price", "text"),
    [
        (150.2, 0.118, "EP inside one board costs +11.8 %: 150.2 s"),
        (134.3, 0.0, "EP inside one board costs nothing: the fastest mapping is one of those"),
        (None, None, "EP inside one board: no mapping is feasible"),
    ],
)
def test_a_price_stands_under_the_table_in_a_line(step_time_s, price, text):
    priced = Price(axis="ep", unit="board", step_time_s=step_time_s, price=price)
    answer = answers.optimal().model_copy(update={"prices": [priced]})
    assert text in plain(solve_lines(answer, width=100)).splitlines()
    assert f"- {text}" in markdown_text(answer).splitlines()


@pytest.mark.parametrize("width", WIDTHS)
def test_every_fact_of_a_mapping_is_there_at_every_width(width):
    text = " ".join(plain(solve_lines(answers.optimal(), width=width)).split())
    for fact in ("12.38 s", "2.71 M", "31.2 %", "74.1 of 81.6 GB", "19.0 %", "interleaved", "norm+activation", "full"):
        assert fact in text
    for place in ("8@board", "8@rack×2@pod", "8@board×8@rack"):
        assert place in text
    assert "HBM per device +6.1 GB" in text
    assert "9.1 % shorter" in text
    assert "no single relaxation helps" in text


def test_a_screenful():
    assert len(solve_lines(answers.optimal(), width=120)) <= 45


@pytest.mark.parametrize("width", WIDTHS)
def test_infeasible_says_why_and_what_helps(width):
    text = " ".join(plain(solve_lines(answers.infeasible(), width=width)).split())
    assert "1.25 TB per device" in text
    assert "devices 64 -> 1,024" in text
    assert "98.2 s" in text


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("feasible", [True, False])
def test_check_fits_its_width(width, feasible):
    text = plain(check_lines(answers.report(feasible=feasible), width=width, verbose=True))
    assert max(map(cell_len, text.splitlines())) <= width


def test_devices_are_a_column_only_when_mappings_differ_in_them():
    answer = answers.optimal(2)
    assert "4,096 devices" in plain(solve_lines(answer, width=120)).splitlines()[1]
    fewer = answer.mappings[1].model_copy(update={"devices": 2048})
    text = plain(solve_lines(answer.model_copy(update={"mappings": [answer.mappings[0], fewer]}), width=120))
    assert "devices" not in text.splitlines()[1]
    assert "2,048" in text


def test_assumptions_are_told_by_input_and_all_of_them_on_request():
    brief, full = (" ".join(plain(solve_lines(answers.optimal(), width=120, verbose=v)).split()) for v in (False, True))
    assert "Rests on topology asic: device hbm 96 GB (assumed), device hbm bandwidth" in brief
    assert "and 1 more; profile asic: GEMM" in brief
    assert "pod bandwidth" not in brief
    assert "pod bandwidth 12.5 GB/s (assumed); profile asic: GEMM" in full


def test_single_mapping_needs_no_shared_line():
    assert "every mapping" not in plain(solve_lines(answers.optimal(1), width=120))


def test_no_escape_codes_in_a_pipe(mapsearch, api, run_file):
    assert "\x1b" not in mapsearch("solve", "--run", run_file).out


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_colour_on_a_terminal_unless_no_color(mapsearch, api, run_file, monkeypatch, no_color, coloured):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    out = mapsearch("solve", "--run", run_file).out
    assert ("\x1b[1;32m" in out) is coloured


def test_ascii_screens_get_ascii(tmp_path, run_file):
    import os
    import subprocess
    import sys

    code = (
        f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import answers\n"
        "from mapsearch.cli.render import emit; emit(answers.optimal(), format_='table', output=None)"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "100"}
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode("ascii")
    assert "8@rackx2@pod" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (human.amount(1.25e12), "1.25 TB"),
        (human.amount(81.6e9), "81.6 GB"),
        (human.amount(999.96e9), "1.00 TB"),
        (human.amount(-8.6e9), "-8.60 GB"),
        (human.amount(0), "0 B"),
        (human.seconds(12.31), "12.3 s"),
        (human.seconds(12.381, 4), "12.38 s"),
        (human.seconds(0.0045), "4.50 ms"),
        (human.seconds(3e-6), "3.00 us"),
        (human.seconds(612), "612 s"),
        (human.seconds(1500), "25.0 min"),
        (human.seconds(0), "0 s"),
        (human.count(4_200_000), "4.20 M"),
        (human.count(4096), "4,096"),
        (human.count(57e9), "5.7e10"),
        (human.percent(0.3123), "31.2 %"),
        (human.percent(0), "0 %"),
        (human.measured(0.124, "share"), "12.4 %"),
        (human.measured(1024, "devices"), "1,024 devices"),
    ],
)
def test_human_numbers(shown, text):
    assert shown == text


def test_flowed_keeps_every_word_and_packed_every_part():
    assert " ".join(line.plain.strip() for line in flowed("a bb ccc dddd", width=6)) == "a bb ccc dddd"
    lines = packed([("aaa", ""), ("", ""), ("bbb", ""), ("c" * 20, "")], indent=2, width=12)
    assert [line.plain for line in lines] == ["  aaa   bbb", "  " + "c" * 20]


def test_to_ascii():
    assert to_ascii("a · b → c × d").isascii()


def test_progress_figures():
    from mapsearch.cli.progress import figures

    report = Progress("join", 12, 4321, incumbent_s=12.0, bound_s=9.0)
    assert figures(report) == "12/4,321  best 12.00 s  gap 25.0 %"
    assert figures(Progress("reading")) == ""


def test_notebooks_get_an_escaped_table_and_pandas_a_row_per_mapping():
    answer = answers.optimal(2)
    odd = answer.mappings[0].model_copy(update={"choices": {**answer.mappings[0].choices, "schedule": "<b>"}})
    html = answer.model_copy(update={"mappings": [odd]})._repr_html_()
    assert html.count("<tr>") == 2
    assert "&lt;b&gt;" in html
    frame = answer.to_dataframe()
    assert list(frame["rank"]) == [1, 2]
    assert list(frame["recompute"]) == ["norm+activation", "full"]


def test_json_of_an_answer_reads_back_and_holds_no_wall_times():
    answer = answers.optimal()
    again = type(answer).model_validate_json(answer.to_json())
    assert again.to_json() == answer.to_json()
    assert "seconds" not in answer.to_json()
    assert "timings" not in answer.to_json()


def several_conflicts():
    [first] = answers.infeasible().conflicts
    wishes = ["heads_divide", "user_fix_tp"]
    sentences = ["query heads split evenly over TP; there are 96", "you fix tp = 5"]
    told = {"sentences": sentences, "kind": "mixed", "statement": "what you ask for meets physics"}
    second = Conflict(relations=wishes, fields=[["moe-5t: heads"], ["run: constraints.fix.tp"]], **told)
    again = Conflict(relations=["kv_heads_divide", "user_fix_tp"], restates=2, **told)
    change = Change(
        name="hbm", lever="HBM 96 -> 192 GB", from_value=96e9, to_value=192e9, unit="bytes", weight=2.0, cost=2.0
    )
    joint = JointRelaxation(
        changes=[change], cost=2.0, weights={"hbm": 2.0}, grid="hbm: any value", proven=True, mapping="TP8 CP8"
    )
    changes = {"conflicts": [first, second, again], "joint": joint, "conflicts_complete": True}
    changes |= {"first_rejections": {"heads_divide": 7, "hbm": 12}, "rejections_note": "of 19 joint mappings"}
    return answers.infeasible().model_copy(update=changes)


@pytest.mark.parametrize("width", WIDTHS)
def test_several_conflicts_are_told_apart_and_restatements_in_a_line(width):
    text = plain(solve_lines(several_conflicts(), width=width, verbose=True))
    joined = " ".join(text.split())
    assert "Why, 1: these cannot hold together" in joined and "Why, 2: nor can these" in joined
    assert "see moe-5t: heads; run: constraints.fix.tp" in joined
    assert "The same again by other rules: kv_heads_divide with user_fix_tp (as 2)." in joined
    assert "There is no other minimal conflict." in joined
    assert "HBM 96 -> 192 GB, cost 2" in joined and "no cheaper one of the grid helps" in joined
    assert "in this order: heads_divide 7, hbm 12" in joined and "of 19 joint mappings" in joined


def test_markdown_of_several_conflicts_has_their_kind_fields_and_tallies():
    text = markdown_text(several_conflicts())
    assert "Conflict 2 (mixed): what you ask for meets physics" in text
    assert "- you fix tp = 5 (run: constraints.fix.tp)" in text
    assert "Conflict 3 (mixed, as 2)" in text
    assert "| together: HBM 96 -> 192 GB |" in text
    assert "| hbm | 12,345 | 12 |" in text
