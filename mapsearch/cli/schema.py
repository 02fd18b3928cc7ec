"""`mapsearch schema`: the JSON Schema of an input file or of the answer."""

from __future__ import annotations

import importlib
import json

import click

from mapsearch.cli.options import check_output, output_file
from mapsearch.cli.render import write_text

DOCUMENTS = {
    "model": "mapsearch.inventories.model:Model",
    "run": "mapsearch.inventories.run:Run",
    "mapping": "mapsearch.inventories.mapping:Mapping",
    "case": "mapsearch.inventories.case:Case",
    "rollout": "mapsearch.inventories.rollout:Rollout",
    "manifest": "mapsearch.inventories.manifest:Manifest",
    "two-pools": "mapsearch.pooled:TwoPools",
    "two-pools-front": "mapsearch.pooled_front:PoolFront",
    "profile": "mapsearch.inventories.profile:Profile",
    "steps": "mapsearch.calibration.steps:MeasuredSteps",
    "topology": "mapsearch.topologies.spec:Topology",
    "sweep": "mapsearch.sweeps.spec:Sweep",
    "sweep-item": "mapsearch.sweeps.record:SweepItem",
    "measurement": "mapsearch.inventories.measurement:Measurement",
    "loop": "mapsearch.inventories.loop:Loop",
    "loop-report": "mapsearch.loop:LoopReport",
    "answer": "mapsearch.answer:Answer",
    "contract": "mapsearch.contract:Contract",
    "lock": "mapsearch.reproduction:Lock",
    "reproduction": "mapsearch.reproduction:Reproduction",
    "front": "mapsearch.front:Front",
    "sensitivity": "mapsearch.parametric:Sensitivity",
    "comparison": "mapsearch.comparison:Comparison",
    "explanation": "mapsearch.explanation:Explanation",
    "pools-explanation": "mapsearch.pools_explained:PoolsExplanation",
    "guidelines": "mapsearch.guideline:Guidelines",
    "scale-down": "mapsearch.scaledown:ScaledDown",
    "check": "mapsearch.answer:CheckReport",
    "placement": "mapsearch.placement:Placement",
    "audit": "mapsearch.audited:Audit",
    "expert-load": "mapsearch.expert_load:ExpertLoad",
    "verdict": "mapsearch.verdict:Verdict",
    "simulation": "mapsearch.simulation:Simulation",
    "export": "mapsearch.exported:Exported",
}
"""Document: where its record lives."""


@click.command("schema", short_help="Print the JSON Schema of an input file or of the answer.")
@click.argument("document", type=click.Choice(tuple(DOCUMENTS)))
@output_file()
def command(document: str, output: str | None) -> None:
    """Print the JSON Schema of a document, for editors and checkers."""
    check_output(output)
    module, _, name = DOCUMENTS[document].partition(":")
    schema = getattr(importlib.import_module(module), name).model_json_schema()
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    write_text(json.dumps({**dialect, **schema}, indent=2, ensure_ascii=False) + "\n", output)
