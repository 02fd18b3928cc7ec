"""Seconds of single kernels: products by shape and format, and passes through HBM (FORMULAS 3.2, 2.3).

Contents: ELEMENT_BYTES, saturated, gemm_s, memory_pass_s, linear_peak, mean_linear_peak, quantise_s.
"""

from __future__ import annotations

from mapsearch import arrays as np
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile, Saturation
from mapsearch.inventories.run import Run
from mapsearch.quantity import Floats, Num
from mapsearch.topologies.fabric import Fabric

ELEMENT_BYTES = 2.0
"""Activations in BF16."""
_floats = np.floats


def saturated(curve: Saturation, rows: Num, columns: Num) -> Floats:
    """Share of the peak rate at a shape: peak * rows/(rows + half_rows) * columns/(columns + half_columns)."""
    tall, wide = _floats(rows), _floats(columns)
    return np.asarray(curve.peak * tall / (tall + curve.half_rows) * wide / (wide + curve.half_columns))


def gemm_s(rows: Num, inputs: Num, outputs: Num, *, peak_flops: float, curve: Saturation) -> Floats:
    """Seconds of a rows x inputs times inputs x outputs product: 2 FLOP per weight and row.

    The narrower of inputs and outputs sets the column saturation. Unit: s. Source: F3.2.
    """
    work = 2.0 * _floats(rows) * inputs * outputs
    return np.asarray(work / (peak_flops * saturated(curve, rows, np.minimum(inputs, outputs))))


def memory_pass_s(moved_bytes: Num, *, fabric: Fabric, profile: Profile) -> Floats:
    """Seconds to read or write `moved_bytes` of HBM. Unit: s."""
    return _floats(moved_bytes) / (fabric.device.hbm_bytes_per_s * profile.memory_bandwidth)


def linear_peak(run: Run, fabric: Fabric, profile: Profile) -> Num:
    """FLOP/s that a quantised layer's efficiency is a share of: FP8 and FP4 products keep `fp8_share`, `fp4_share`."""
    share = profile.fp4_share if run.fp4 else profile.fp8_share if run.fp8 else 1.0
    return fabric.device.peak(run.linear_format) * share


def mean_linear_peak(model: Model, run: Run, fabric: Fabric, profile: Profile) -> Num:
    """The same over all layers: the time of a product is the mean over those that stay in 16 bits and the others.

    Unit: FLOP/s. Source: F2.3. Ignores: that the layers in 16 bits stand at the ends of the pipeline.
    """
    narrow = run.narrow_share(model.layers)
    peak = linear_peak(run, fabric, profile)
    if narrow in (0.0, 1.0):
        return peak if narrow else fabric.device.peak(run.half_format)
    return 1.0 / (narrow / peak + (1.0 - narrow) / fabric.device.peak(run.half_format))


def quantise_s(elements: Num, *, model: Model, run: Run, fabric: Fabric, profile: Profile) -> Floats:
    """HBM passes that bring a GEMM's 16-bit inputs to FP8 or NVFP4, mean over the layers; 0 where none runs in them.

    Unit: s. Source: F2.3.
    """
    passes = profile.fp4_quantise_passes if run.fp4 else profile.fp8_quantise_passes
    moved = passes * run.narrow_share(model.layers) * ELEMENT_BYTES * _floats(elements)
    return memory_pass_s(moved, fabric=fabric, profile=profile)
