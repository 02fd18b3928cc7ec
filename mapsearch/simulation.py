"""The typed, versioned timeline of a mapping's pipeline; its JSON is what `timeline --format json` prints.

Contents: SIMULATION_SCHEMA, SimulatedStage, SimulatedOp, Simulation.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mapsearch.answer import Provenance

SIMULATION_SCHEMA = "mapsearch.simulation/1"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, use_attribute_docstrings=True)


class SimulatedStage(_Record):
    """One device of the pipeline."""

    stage: int
    forward_s: float
    """One microbatch through the whole device in the steady phase, what is exposed of its communication included."""
    input_grad_s: float
    weight_grad_s: float
    busy_s: float
    idle_s: float
    """Seconds of the makespan in which it does not compute."""
    peak_microbatches: float
    """The most microbatches whose activations it holds at once, in microbatches through the whole device."""
    closed_form_microbatches: float
    """What the cost model charges memory for."""


class SimulatedOp(_Record):
    """One operation in its place and time."""

    stage: int
    chunk: int
    """Chunk of layers on the device; for DualPipe the direction."""
    microbatch: int
    kind: Literal["forward", "backward", "input-grad", "weight-grad"]
    start_s: float
    end_s: float


class Simulation(_Record):
    """A step's pipeline run operation by operation, beside the closed form of the cost model."""

    schema_: str = Field(default=SIMULATION_SCHEMA, alias="schema")
    mapping: str
    schedule: str
    order_source: str
    """Where the order of the operations is from."""
    vpp: int
    microbatches: int
    hop_s: float
    """Seconds between devices on top of what the stages' own times hold."""
    makespan_s: float
    """From the first operation's start to the last one's end."""
    longest_device_s: float
    """The longest time from a device's first operation to its last one's end."""
    simulated_s: float
    """Which of the two the closed form stands for."""
    closed_form_s: float
    """The cost model's closed form on the same stage times."""
    gap: str
    """What is known of the difference between the two."""
    least_s: float
    """No order of the same operations on the same devices ends sooner."""
    estimate_s: float | None
    """Rounds and bubble of the mapping's estimated step; null where the stage times were given."""
    estimate_bubble_s: float | None
    """The part of it that the breakdown of the step calls bubble."""
    step_time_s: float | None
    """The mapping's whole estimated step; what is beyond `estimate_s` comes after the pipeline."""
    stages: list[SimulatedStage]
    ops: list[SimulatedOp]
    """By device, then by time."""
    provenance: Provenance
    notes: list[str]

    def to_json(self) -> str:
        """The versioned JSON, the same bytes for the same simulation."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"
