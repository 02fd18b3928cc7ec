"""Fits as the part of a profile that they measure: fields with value, source and note, as they stand in the YAML file.

Contents: collective_part, gemm_part.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mapsearch.calibration.alpha_beta import LOGGED_RINGS, PROFILE_FIELDS, CollectiveFit, efficiency
from mapsearch.calibration.gemm import GemmFit
from mapsearch.errors import InputError
from mapsearch.inventories.profile import CollectiveEfficiency
from mapsearch.units import TIME, render

SIDES = {"inside": "high_bandwidth_peak", "across": "peak"}
"""The field of a collective's efficiency that each level's share goes to."""


def collective_part(
    fits: Sequence[CollectiveFit], bandwidth: float, *, latency_s: float | None = None, in_network: bool = False
) -> dict[str, Any]:
    """Efficiencies by field of the profile: the median where several logs measure one. Raises InputError.

    `launch` is given only with the level's latency: without it, alpha would be counted twice by the cost model.
    """
    levels = {fit.level for fit in fits}
    if len(levels) > 1:
        raise InputError(
            "the logs ran on more than one level, and a bandwidth belongs to one; calibrate each level with its own "
            "--bandwidth",
            field="--bandwidth",
        )
    found: dict[str, list[tuple[CollectiveFit, CollectiveEfficiency]]] = {}
    for fit in fits:
        share = efficiency(fit, bandwidth, latency_s=latency_s, in_network=in_network)
        found.setdefault(PROFILE_FIELDS[fit.operation], []).append((fit, share))
    part = {field: _collective_fields(found[field], latency_s) for field in sorted(found)}
    if levels == {"across"} and {"all_reduce", "all_gather"} & {*found}:
        note = "the rings of NCCL and RCCL, by which the shares are counted"
        part["rings"] = {"value": LOGGED_RINGS, "source": "assumed", "note": note}
    return part


def _collective_fields(
    pairs: Sequence[tuple[CollectiveFit, CollectiveEfficiency]], latency_s: float | None
) -> dict[str, Any]:
    note = "; ".join(_basis(fit) for fit, _ in pairs)
    side = SIDES[str(pairs[0][0].level)]
    share = round(float(np.median([share.peak for _, share in pairs])), 4)
    fields: dict[str, Any] = {side: {"value": share, "source": "measured", "note": note}}
    launches = [share.launch for fit, share in pairs if fit.best.alpha_told]
    if latency_s is not None and launches:
        beyond = f"alpha beyond {render(latency_s, TIME)} per step; {note}"
        launch = float(f"{np.median(launches):.4g}")
        fields["launch"] = {"value": render(launch, TIME), "source": "measured", "note": beyond}
    return fields


def _basis(fit: CollectiveFit) -> str:
    best = fit.best
    sizes = f"{best.least_bytes:.4g} to {best.most_bytes:.4g} bytes"
    return (
        f"{Path(fit.file).name}: {fit.operation.replace('_', '-')} of {fit.ranks} ranks, {best.rows} rows of {sizes}, "
        f"residual {best.residual:.1%}, worst {best.worst:.1%}"
    )


def gemm_part(fit: GemmFit) -> dict[str, Any]:
    """The curve as the profile's `gemm`."""
    note = (
        f"{Path(fit.file).name}: {fit.rows} timings of {fit.dtype or 'one format'}, residual {fit.residual:.1%}, "
        f"worst {fit.worst:.1%}"
    )
    values = {
        "peak": round(fit.curve.peak, 4),
        "half_rows": round(fit.curve.half_rows, 1),
        "half_columns": round(fit.curve.half_columns, 1),
    }
    return {"gemm": {name: {"value": value, "source": "measured", "note": note} for name, value in values.items()}}
