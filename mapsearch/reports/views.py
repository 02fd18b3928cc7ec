"""Every result that commands show, with its views: lines of a table, records, Markdown.

Contents: View, VIEWS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from mapsearch.answer import Answer, CheckReport
from mapsearch.audited import Audit
from mapsearch.comparison import Comparison
from mapsearch.contract import Contract, contract_records
from mapsearch.expert_load import ExpertLoad
from mapsearch.explanation import Explanation
from mapsearch.front import Front
from mapsearch.guideline import Guidelines, guideline_records
from mapsearch.loop import LoopReport, loop_records
from mapsearch.parametric import Sensitivity
from mapsearch.placement import Placement
from mapsearch.pools_explained import PoolsExplanation
from mapsearch.reports.audits import audit_lines, audit_markdown, audit_records
from mapsearch.reports.cases import verdict_lines, verdict_markdown, verdict_records
from mapsearch.reports.comparisons import comparison_lines, comparison_markdown, comparison_records
from mapsearch.reports.contracts import contract_lines, contract_markdown
from mapsearch.reports.expert_loads import expert_load_lines, expert_load_markdown, expert_load_records
from mapsearch.reports.explanations import explanation_lines, explanation_markdown, explanation_records
from mapsearch.reports.flat import answer_records, markdown_text, report_records
from mapsearch.reports.fronts import front_lines, front_markdown, front_records
from mapsearch.reports.guidelines import guideline_lines, guideline_markdown
from mapsearch.reports.loops import loop_lines, loop_markdown
from mapsearch.reports.placements import placement_lines, placement_markdown, placement_records
from mapsearch.reports.pools_explained import (
    pools_explained_lines,
    pools_explained_markdown,
    pools_explained_records,
)
from mapsearch.reports.reproductions import reproduction_lines, reproduction_markdown, reproduction_records
from mapsearch.reports.scaledowns import scale_down_lines, scale_down_markdown
from mapsearch.reports.sensitivities import sensitivity_lines, sensitivity_markdown, sensitivity_records
from mapsearch.reports.tables import solve_lines
from mapsearch.reports.verdicts import check_lines
from mapsearch.reproduction import Reproduction
from mapsearch.scaledown import ScaledDown, kept_records
from mapsearch.verdict import Verdict


@dataclass(frozen=True)
class View:
    """How one kind of result is shown."""

    lines: Callable[..., list[Text]]
    records: Callable[[Any], list[dict[str, Any]]]
    markdown: Callable[[Any], str]


VIEWS: dict[type, View] = {
    Answer: View(solve_lines, answer_records, markdown_text),
    CheckReport: View(check_lines, report_records, markdown_text),
    Front: View(front_lines, front_records, front_markdown),
    Sensitivity: View(sensitivity_lines, sensitivity_records, sensitivity_markdown),
    Verdict: View(verdict_lines, verdict_records, verdict_markdown),
    Explanation: View(explanation_lines, explanation_records, explanation_markdown),
    PoolsExplanation: View(pools_explained_lines, pools_explained_records, pools_explained_markdown),
    Guidelines: View(guideline_lines, guideline_records, guideline_markdown),
    Placement: View(placement_lines, placement_records, placement_markdown),
    ScaledDown: View(scale_down_lines, kept_records, scale_down_markdown),
    Contract: View(contract_lines, contract_records, contract_markdown),
    Reproduction: View(reproduction_lines, reproduction_records, reproduction_markdown),
    Audit: View(audit_lines, audit_records, audit_markdown),
    LoopReport: View(loop_lines, loop_records, loop_markdown),
    ExpertLoad: View(expert_load_lines, expert_load_records, expert_load_markdown),
    Comparison: View(comparison_lines, comparison_records, comparison_markdown),
}
"""Kind of result: its views."""
