"""DeepSpeed with Ulysses: what it refuses beyond physics (FORMULAS 5.2).

Contents: RULES.

That EP divides the ranks of a stage, and heads divide by Ulysses' degree, is arithmetic that every framework needs.
"""

from __future__ import annotations

from mapsearch import arrays as np
from mapsearch.axes import CpKind, Dispatcher
from mapsearch.constraints.frameworks.rules import FrameworkRule, always
from mapsearch.constraints.frameworks.shared import no_dispatch
from mapsearch.constraints.rules import rule, whole, word

RULES: tuple[FrameworkRule, ...] = always(
    rule(
        "deepspeed_etp",
        "expert",
        lambda e: e.etp > 1,
        "DeepSpeed's AutoEP takes ETP 1",
        lambda e: f"ETP is {whole(e.etp)}",
        origin="deepspeed",
        levers=("etp",),
        source="F5.2 DeepSpeed",
    ),
    rule(
        "deepspeed_cp",
        "attention",
        lambda a: (a.cp > 1) & (np.asarray(a.cp_kind) != CpKind.ULYSSES),
        "DeepSpeed's context parallel is Ulysses",
        lambda a: f"CP {whole(a.cp)} exchanges by {word('cp_kind', a.cp_kind)}",
        absent=lambda a: "CP is 1" if whole(a.cp) == 1 else "",
        origin="deepspeed",
        levers=("cp_kind",),
        source="F5.2 DeepSpeed",
    ),
    rule(
        "deepspeed_dispatcher",
        "expert",
        lambda e: (e.ep > 1) & ~np.isin(np.asarray(e.dispatcher), (Dispatcher.ALL_TO_ALL, Dispatcher.FIXED_ALL_TO_ALL)),
        "DeepSpeed dispatches tokens by all-to-all",
        lambda e: f"EP {whole(e.ep)} exchanges by {word('dispatcher', e.dispatcher)}",
        absent=no_dispatch,
        origin="deepspeed",
        levers=("dispatcher",),
        source="F5.2 DeepSpeed",
    ),
)
