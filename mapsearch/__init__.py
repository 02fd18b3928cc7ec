"""mapsearch: exact search over the parallel mappings of huge mixture-of-experts training.

`mapsearch.solve(...)`, `check(...)`, `audit(...)`, `explain(...)`, `pareto(...)`, `sensitivity(...)`, `compare(...)`,
`sweep(...)`, `contract_of(...)`, `rollout(...)`, `rollout_front(...)` and `timeline(...)` are the Python API.
Everything is imported on first use, so that `import mapsearch` loads neither a solver nor numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from mapsearch.answer import Answer, CheckReport, RankedMapping
    from mapsearch.api import check, solve
    from mapsearch.audited import Audit
    from mapsearch.auditing.api import audit
    from mapsearch.comparing import compare
    from mapsearch.comparison import Comparison
    from mapsearch.contract import Contract
    from mapsearch.contracting.api import contract_of
    from mapsearch.errors import ExitCode, InputError, MapsearchError
    from mapsearch.explaining.api import explain
    from mapsearch.explanation import Explanation
    from mapsearch.exported import Exported
    from mapsearch.front import Front, FrontPoint
    from mapsearch.fronts import pareto
    from mapsearch.guideline import Guidelines
    from mapsearch.hypotheses.api import guidelines
    from mapsearch.inventories.mapping import Mapping
    from mapsearch.inventories.model import Model
    from mapsearch.inventories.profile import Profile
    from mapsearch.inventories.run import Run
    from mapsearch.launching.api import export
    from mapsearch.parametric import Piece, Sensitivity
    from mapsearch.pooled import TwoPools
    from mapsearch.pooled_front import PoolFront
    from mapsearch.pooling.api import rollout
    from mapsearch.pooling.front import rollout_front
    from mapsearch.progress import Progress
    from mapsearch.scaledown import ScaledDown
    from mapsearch.scaling.api import scale_down
    from mapsearch.sensitivities.api import sensitivity
    from mapsearch.simulation import Simulation
    from mapsearch.sweeps.run import SweepResult, sweep
    from mapsearch.timelines import timeline

__all__ = [
    "Answer",
    "Audit",
    "CheckReport",
    "Comparison",
    "Contract",
    "ExitCode",
    "Explanation",
    "Exported",
    "Front",
    "FrontPoint",
    "Guidelines",
    "InputError",
    "Mapping",
    "MapsearchError",
    "Model",
    "Piece",
    "PoolFront",
    "Profile",
    "Progress",
    "RankedMapping",
    "Run",
    "ScaledDown",
    "Sensitivity",
    "Simulation",
    "SweepResult",
    "TwoPools",
    "audit",
    "check",
    "compare",
    "contract_of",
    "explain",
    "export",
    "guidelines",
    "pareto",
    "rollout",
    "rollout_front",
    "scale_down",
    "sensitivity",
    "solve",
    "sweep",
    "timeline",
]

_HOMES = {
    "solve": "mapsearch.api",
    "check": "mapsearch.api",
    "audit": "mapsearch.auditing.api",
    "Audit": "mapsearch.audited",
    "pareto": "mapsearch.fronts",
    "explain": "mapsearch.explaining.api",
    "contract_of": "mapsearch.contracting.api",
    "Contract": "mapsearch.contract",
    "sensitivity": "mapsearch.sensitivities.api",
    "Sensitivity": "mapsearch.parametric",
    "Piece": "mapsearch.parametric",
    "compare": "mapsearch.comparing",
    "Front": "mapsearch.front",
    "FrontPoint": "mapsearch.front",
    "Comparison": "mapsearch.comparison",
    "Explanation": "mapsearch.explanation",
    "guidelines": "mapsearch.hypotheses.api",
    "Guidelines": "mapsearch.guideline",
    "scale_down": "mapsearch.scaling.api",
    "ScaledDown": "mapsearch.scaledown",
    "timeline": "mapsearch.timelines",
    "Simulation": "mapsearch.simulation",
    "export": "mapsearch.launching.api",
    "Exported": "mapsearch.exported",
    "sweep": "mapsearch.sweeps.run",
    "SweepResult": "mapsearch.sweeps.run",
    "Answer": "mapsearch.answer",
    "CheckReport": "mapsearch.answer",
    "RankedMapping": "mapsearch.answer",
    "ExitCode": "mapsearch.errors",
    "InputError": "mapsearch.errors",
    "MapsearchError": "mapsearch.errors",
    "Mapping": "mapsearch.inventories.mapping",
    "Model": "mapsearch.inventories.model",
    "Profile": "mapsearch.inventories.profile",
    "Run": "mapsearch.inventories.run",
    "Progress": "mapsearch.progress",
    "TwoPools": "mapsearch.pooled",
    "PoolFront": "mapsearch.pooled_front",
    "rollout": "mapsearch.pooling.api",
    "rollout_front": "mapsearch.pooling.front",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its home on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Public names, loaded or not."""
    return sorted({*globals(), *__all__})
