"""What a user can type or write stands in the reference pages, and pages point to pages that exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from mapsearch.cli.main import COMMANDS, cli
from mapsearch.errors import ExitCode

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"


def commands():
    def walk(command, name):
        yield name, command
        if isinstance(command, click.Group):
            for sub in command.list_commands(None):
                yield from walk(command.get_command(None, sub), f"{name} {sub}")

    for name in COMMANDS:
        yield from walk(cli.get_command(None, name), f"mapsearch {name}")


def test_every_command_and_option_is_helped_and_documented():
    page = (REFERENCE / "cli.md").read_text()
    sections = dict(re.findall(r"^##+ (mapsearch [^\n]+)\n(.*?)(?=^##+ |\Z)", page, flags=re.M | re.S))
    for name, command in commands():
        assert command.help, name
        assert name in sections, f"{name} has no section in cli.md"
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{name} {parameter.opts[0]} has no help"
                for option in parameter.opts:
                    assert option in sections[name], f"{name} {option} is not in cli.md"


def test_no_command_is_documented_that_is_not_there():
    page = (REFERENCE / "cli.md").read_text()
    assert set(re.findall(r"^##+ (mapsearch [^\n]+)", page, flags=re.M)) == {name for name, _ in commands()}


def test_every_exit_code_is_documented():
    page = (REFERENCE / "exit-codes.md").read_text()
    assert all(f"| {code.value} | {code.name} |" in page for code in ExitCode)


@pytest.mark.parametrize(
    ("page", "module", "record"),
    [
        ("run.md", "mapsearch.inventories.run", "Run"),
        ("run.md", "mapsearch.inventories.run", "UserConstraints"),
        ("run.md", "mapsearch.inventories.run", "Routing"),
        ("run.md", "mapsearch.inventories.run", "StateRecipe"),
        ("run.md", "mapsearch.inventories.run", "Overlap"),
        ("model.md", "mapsearch.inventories.model", "Model"),
        ("model.md", "mapsearch.inventories.model", "Moe"),
        ("mapping.md", "mapsearch.inventories.mapping", "Mapping"),
        ("profile.md", "mapsearch.inventories.profile", "Profile"),
        ("sweep.md", "mapsearch.sweeps.spec", "Sweep"),
        ("sweep-results.md", "mapsearch.sweeps.record", "SweepItem"),
        ("sweep-results.md", "mapsearch.sweeps.record", "ItemError"),
        ("topology.md", "mapsearch.topologies.spec", "Topology"),
        ("topology.md", "mapsearch.topologies.spec", "DeviceSpec"),
        ("topology.md", "mapsearch.topologies.spec", "LevelSpec"),
        ("topology.md", "mapsearch.topologies.spec", "LinkSpec"),
        ("answer.md", "mapsearch.answer", "RankedMapping"),
        ("answer.md", "mapsearch.answer", "Answer"),
        ("front.md", "mapsearch.front", "FrontPoint"),
        ("front.md", "mapsearch.front", "Front"),
        ("sensitivity.md", "mapsearch.parametric", "Piece"),
        ("sensitivity.md", "mapsearch.parametric", "Sensitivity"),
        ("simulation.md", "mapsearch.simulation", "Simulation"),
        ("simulation.md", "mapsearch.simulation", "SimulatedStage"),
        ("simulation.md", "mapsearch.simulation", "SimulatedOp"),
        ("explanation.md", "mapsearch.explanation", "Explanation"),
        ("explanation.md", "mapsearch.explanation", "Stability"),
        ("explanation.md", "mapsearch.explanation", "RulePrice"),
        ("explanation.md", "mapsearch.explanation", "WhyNot"),
        ("contract.md", "mapsearch.contract", "Contract"),
        ("contract.md", "mapsearch.contract", "DomainContract"),
        ("contract.md", "mapsearch.contract", "Row"),
        ("contract.md", "mapsearch.contract", "Found"),
        ("contract.md", "mapsearch.contract", "Attribution"),
        ("contract.md", "mapsearch.contract", "Part"),
        ("contract.md", "mapsearch.contract", "Origin"),
        ("reproduction.md", "mapsearch.reproduction", "Lock"),
        ("reproduction.md", "mapsearch.reproduction", "LockedDocument"),
        ("reproduction.md", "mapsearch.reproduction", "Reproduction"),
        ("reproduction.md", "mapsearch.reproduction", "Difference"),
        ("reproduction.md", "mapsearch.reproduction", "Trial"),
        ("loop.md", "mapsearch.inventories.loop", "Loop"),
        ("loop.md", "mapsearch.inventories.lengths", "Lengths"),
        ("loop.md", "mapsearch.inventories.loop", "TrainingSide"),
        ("loop.md", "mapsearch.inventories.loop", "RolloutSide"),
        ("loop.md", "mapsearch.inventories.loop", "PublishPath"),
        ("loop.md", "mapsearch.inventories.loop", "QueueBounds"),
        ("loop.md", "mapsearch.inventories.loop", "StalenessBudget"),
        ("loop.md", "mapsearch.inventories.loop", "LoopRun"),
        ("loop-report.md", "mapsearch.loop", "LoopReport"),
        ("loop-report.md", "mapsearch.loop", "SteadyState"),
        ("loop-report.md", "mapsearch.loop", "LoopConstraint"),
        ("loop-report.md", "mapsearch.loop", "Agreement"),
        ("loop-report.md", "mapsearch.loop", "PolicyCost"),
        ("loop-report.md", "mapsearch.loop", "LoopPoint"),
        ("loop-report.md", "mapsearch.loop", "QueuePoint"),
        ("measurement.md", "mapsearch.inventories.measurement", "Measurement"),
        ("topology.md", "mapsearch.topologies.spec", "LibrarySpec"),
        ("explanation.md", "mapsearch.explanation", "Win"),
        ("placement.md", "mapsearch.placement", "Placement"),
        ("two-pools.md", "mapsearch.pooled", "PublishPlan"),
        ("two-pools.md", "mapsearch.pooled", "CutTold"),
        ("two-pools.md", "mapsearch.pooled", "LevelTold"),
        ("placement.md", "mapsearch.placement", "AxisGroups"),
        ("placement.md", "mapsearch.placement", "Pattern"),
        ("placement.md", "mapsearch.placement", "Seating"),
        ("front.md", "mapsearch.comparison", "Moved"),
        ("front.md", "mapsearch.comparison", "Term"),
        ("front.md", "mapsearch.comparison", "Crossing"),
        ("front.md", "mapsearch.comparison", "Comparison"),
        ("export.md", "mapsearch.exported", "Exported"),
        ("export.md", "mapsearch.exported", "Unexpressed"),
        ("export.md", "mapsearch.exported", "Refusal"),
    ],
)
def test_every_field_is_documented(page, module, record):
    import importlib

    fields = getattr(importlib.import_module(module), record).model_fields
    text = re.sub(r"```.*?```", "", (REFERENCE / page).read_text(), flags=re.S)
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text))))
    hidden = {"sources", "rank", "binding_note", "timings_s", "schema_"}
    assert {name for name in fields if f"`{name}`" not in text} - hidden - words == set(), "python docs/generate.py"


def test_links_between_pages_lead_somewhere():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} points to {target}"


def test_examples_of_the_pages_are_read(tmp_path):
    """YAML blocks of the how-to pages are valid documents of their kind."""
    from mapsearch import documents
    from mapsearch.inventories.loop import Loop
    from mapsearch.inventories.mapping import Mapping
    from mapsearch.inventories.measurement import Measurement
    from mapsearch.inventories.model import Model
    from mapsearch.inventories.rollout import Rollout
    from mapsearch.inventories.run import Run
    from mapsearch.records import validate
    from mapsearch.sweeps.spec import Sweep, checked, combinations
    from mapsearch.topologies.spec import Topology

    kinds = {
        "how-to/constrain-the-search.md": Run,
        "how-to/own-cluster.md": Topology,
        "how-to/own-model.md": Model,
        "how-to/rollout.md": Rollout,
        "reference/rollout.md": Rollout,
        "reference/run.md": Run,
        "reference/sweep.md": Sweep,
        "how-to/sweep.md": Sweep,
        "reference/mapping.md": Mapping,
        "reference/measurement.md": Measurement,
        "how-to/contract.md": Measurement,
        "reference/loop.md": Loop,
        "how-to/loop.md": Loop,
        "tutorial.md": Mapping,
    }
    for page, kind in kinds.items():
        blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / page).read_text(), flags=re.S)
        assert blocks, page
        for block in blocks:
            document = validate(kind, documents.parse(block, file=page), file=page)
            if isinstance(document, Sweep):
                assert combinations(checked(document, file=page))
