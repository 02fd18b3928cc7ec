"""Reports and pictures: what they hold, that nothing is loaded or run in them, and that texts cannot break out."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mapsearch.cli.main import main
from mapsearch.reports.exports.charts import Bar, Chart, Point, chart_png, chart_svg
from mapsearch.reports.exports.cluster import ClusterPicture, LevelPicture, cluster_html, cluster_svg
from mapsearch.reports.exports.report import Column, Figure, Section, Table, TextBlock, report_html

VOID = {"meta", "br", "img", "input", "link", "hr", "path", "rect", "circle"}


class Outline(HTMLParser):
    """Elements in order, with their attributes; raises when they are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == [], self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag, tag


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    names = {name: str(folder / f"{name}.json") for name in ("answer", "front", "why", "placement", "audit")}
    about = ["--model", "mixtral-8x7b", "--topology", "hgx-h100", "--devices", "64", "--sequence-length", "8192"]
    plain = ["--format", "json", "--quiet", "-o"]
    assert main(["solve", *about, "--top", "3", *plain, names["answer"]]) == 0
    assert main(["pareto", *about, *plain, names["front"]]) == 0
    assert main(["explain", *about, *plain, names["why"]]) == 0
    assert main(["placement", names["answer"], *plain, names["placement"]]) == 0
    assert main(["audit", names["answer"], *plain, names["audit"]]) == 0
    return folder, names


def test_a_report_holds_what_is_known(files):
    folder, names = files
    out = folder / "report.html"
    assert (
        main(["report", names["answer"], "--front", names["front"], "--explanation", names["why"], "-o", str(out)]) == 0
    )
    text = out.read_text()
    sections = [attrs["id"] for tag, attrs in Outline(text).found if tag == "section"]
    for name in (
        "ranking",
        "front",
        "step",
        "memory",
        "communication",
        "timeline",
        "topology",
        "why",
        "contract",
        "inputs",
    ):
        assert name in sections, name
    answer = json.loads((folder / "answer.json").read_text())
    assert answer["provenance"]["input_sha256"]["model"][:12] in text
    assert "mixtral-8x7b on hgx-h100" in text
    assert len(out.read_bytes()) < 3e6


def test_a_page_loads_and_runs_nothing(files):
    folder, names = files
    out = folder / "still.html"
    assert main(["report", names["answer"], "-o", str(out)]) == 0
    text = out.read_text()
    found = Outline(text).found
    assert not any(tag in ("script", "iframe", "object", "embed", "link") for tag, _ in found)
    assert not any(name.startswith("on") or name == "src" for _, attrs in found for name in attrs)
    assert all(attrs["href"].startswith("#") for tag, attrs in found if tag == "a")
    assert not re.search(r"url\(|@import|http://(?!www\.w3\.org/)", text)


def test_equal_answers_give_equal_bytes(files):
    folder, names = files
    texts = []
    for number in range(2):
        out = folder / f"same{number}.html"
        assert main(["report", names["answer"], "-o", str(out)]) == 0
        texts.append(out.read_bytes())
    assert texts[0] == texts[1]


def test_another_input_is_refused(files, tmp_path, capsys):
    _, names = files
    assert main(["report", names["answer"], "--model", "mixtral-8x22b", "-o", str(tmp_path / "no.html")]) == 2
    assert "another model" in capsys.readouterr().err
    assert main(["report", names["front"], "-o", str(tmp_path / "no.html")]) == 2
    assert main(["report", names["answer"] + "#9", "-o", str(tmp_path / "no.html")]) == 2
    assert main(["report", str(tmp_path / "missing.json"), "-o", str(tmp_path / "no.html")]) == 2


def test_figures_of_their_own(files, tmp_path):
    _, names = files
    out = str(tmp_path / "report.html")
    assert main(["report", names["answer"], "-o", out, "--figures", str(tmp_path / "svg")]) == 0
    assert (
        main(["report", names["answer"], "-o", out, "--figures", str(tmp_path / "png"), "--figure-format", "png"]) == 0
    )
    drawn = {path.stem for path in (tmp_path / "svg").iterdir()}
    assert {"step", "memory", "exposed"} <= drawn
    assert drawn == {path.stem for path in (tmp_path / "png").iterdir()}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "png").iterdir())


EVIL = "</svg><script>alert(1)</script>\" onload='x' &"


def test_texts_cannot_break_out():
    told = lambda value: f"{value:g}{EVIL}"  # noqa: E731
    chart = Chart("c", EVIL, "stacked", told, bars=(Bar(EVIL, ((EVIL, 1.0),)),), limit=2.0, limit_label=EVIL)
    page = report_html(
        EVIL,
        [EVIL],
        [Section("s", EVIL, (TextBlock(EVIL), Table((Column(EVIL),), ((EVIL,),), EVIL), Figure(EVIL, chart)))],
        EVIL,
    )
    found = Outline(page).found
    assert "script" not in {tag for tag, _ in found}
    assert not any("onload" in attrs for _, attrs in found)
    level = LevelPicture(EVIL, 4, "switch", EVIL, EVIL)
    picture = ClusterPicture(EVIL, EVIL, (level,), (EVIL, "b", "c", "d"), {"tp": [0, 0, 1, 1]}, (EVIL,), (EVIL,))
    found = Outline(cluster_html(picture)).found
    assert sum(tag == "script" for tag, _ in found) == 2  # its own
    assert "script" not in {tag for tag, _ in Outline(cluster_svg(picture)).found}


@pytest.mark.parametrize("kind", ["stacked", "waterfall", "points"])
def test_charts_show_every_value(kind):
    told = lambda value: f"<{value:g}>"  # noqa: E731
    bars = (Bar("one", (("a", 1.0), ("b", 2.5))),) if kind != "points" else ()
    points = (Point("p", 1.0, 2.5), Point("q", 3.0, 4.0)) if kind == "points" else ()
    chart = Chart("c", "title", kind, told, bars=bars, points=points, axes=("x", "y"))
    svg = chart_svg(chart)
    for value in ("&lt;1&gt;", "&lt;2.5&gt;"):
        assert value in svg
    Outline(svg)
    assert chart_svg(chart, alone=True).startswith("<svg")
    assert chart_png(chart).startswith(b"\x89PNG")


def test_pictures_of_a_cluster(files, tmp_path, capsys):
    _, names = files
    show = ["topology", "show", "hgx-h100", "--devices", "64"]
    out = tmp_path / "cluster.html"
    drawn = ["--format", "html", "--placement", names["placement"], "--audit", names["audit"]]
    assert main([*show, *drawn, "-o", str(out)]) == 0
    text = out.read_text()
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.S).group(1))
    placement = json.loads(Path(names["placement"]).read_text())
    assert sorted(data["devices"]) == sorted(placement["devices"])
    place = {name: number for number, name in enumerate(data["devices"])}
    for axis, group_of in data["groups"].items():
        for number, ranks in enumerate(placement["groups"][axis]):
            assert {group_of[place[placement["devices"][rank]]] for rank in ranks} == {number}
    assert "busiest link in use" in text
    assert main([*show, "--format", "svg", "-o", str(tmp_path / "cluster.svg")]) == 0
    Outline((tmp_path / "cluster.svg").read_text())
    assert main(["topology", "show", "asic-8", *drawn]) == 2
    assert "which asic-8 does not have" in capsys.readouterr().err
    assert main([*show, "--placement", names["placement"]]) == 2


def test_a_level_of_many_units_says_how_many_are_not_drawn():
    level = LevelPicture("pod", 1000, "switch", "rack", "12 GB/s")
    text = cluster_svg(ClusterPicture("big", "big", (level,)))
    assert text.count('<rect class="tile') == 63
    assert "+937" in text
