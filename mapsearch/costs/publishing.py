"""Publishing weights from training to rollout: bytes, scales and seconds (FORMULAS 1.7).

Contents: WeightFormat, FORMATS, scale_count, scale_bytes, publish_bytes, delta_bytes, transfer_s, serial_publish_s,
pipelined_publish_s.

These functions take amounts, not axes: what is published does not depend on how the training is mapped, except for
the bandwidth, which the caller states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mapsearch.quantity import Floats, Num


@dataclass(frozen=True)
class WeightFormat:
    """Bytes of one weight, and the block of weights that shares one scale (0 for no scales)."""

    weight_bytes: float
    block_rows: int = 0
    block_columns: int = 0
    scale_bytes: float = 0.0


FORMATS = {
    "bf16": WeightFormat(2.0),
    "fp8-tensor": WeightFormat(1.0),
    "fp8-block": WeightFormat(1.0, 128, 128, 4.0),
    "fp8-block-fp16-scale": WeightFormat(1.0, 128, 128, 2.0),
    "fp8-row": WeightFormat(1.0, 1, 128, 4.0),
    "fp8-row-fp16-scale": WeightFormat(1.0, 1, 128, 2.0),
    "mxfp8": WeightFormat(1.0, 1, 32, 1.0),
    "nvfp4": WeightFormat(0.5, 1, 16, 1.0),
}
"""Formats that rollout engines read; scales in FP32 unless said, E8M0 for MXFP8, E4M3 for NVFP4 (F1.7)."""


def scale_count(rows: Num, columns: Num, *, block_rows: int, block_columns: int) -> Floats:
    """Scales of one tensor: ceil(rows/b_r) * ceil(columns/b_c); blocks at the edges are whole.

    Unit: scales. Source: F1.7 (7168 x 576 in 128 x 128 needs 280, not 252).
    """
    high = np.ceil(np.asarray(rows, dtype=np.float64) / block_rows)
    return np.asarray(high * np.ceil(np.asarray(columns, dtype=np.float64) / block_columns))


def scale_bytes(parameters: Num, weights: WeightFormat) -> Floats:
    """Scales of `parameters` parameters whose tensors divide into whole blocks. Unit: bytes. Source: F1.7."""
    count, block = np.asarray(parameters, dtype=np.float64), weights.block_rows * weights.block_columns
    return np.asarray(count / block * weights.scale_bytes if block else 0.0 * count)


def publish_bytes(parameters: Num, weights: WeightFormat) -> Floats:
    """Weights and scales of `parameters` parameters whose tensors divide into whole blocks.

    P * e + P / (b_r b_c) * e_scale. Unit: bytes. Source: F1.7. Ignores: edge blocks, see `scale_count`; the master
    copies and the manifest.
    """
    return np.asarray(
        np.asarray(parameters, dtype=np.float64) * weights.weight_bytes + scale_bytes(parameters, weights)
    )


def delta_bytes(
    full_bytes: Num, parameters: Num, weights: WeightFormat, *, form: str, share: Num, index_bytes: float = 0.0
) -> Floats:
    """What is sent of a version of which a share changed; never more than the whole version.

    indices: share P (e + e_index) and all scales; bitmap: share P e, P / 8 and all scales; tensors: share of all.
    Unit: bytes. Source: layouts of public delta updates, values with flat 32-bit positions (vllm-project/vime #392:
    4.50 % of 30.5 B weights in BF16 are 8.24 GB; verl #6974: about 1 % are 1.8 GB) or a bit for every weight.
    Ignores: compression of positions or values.
    """
    count = np.asarray(parameters, dtype=np.float64)
    if form == "tensors":
        return np.asarray(np.asarray(full_bytes) * share)
    position = share * index_bytes if form == "indices" else 0.125
    sent = count * (share * weights.weight_bytes + position) + scale_bytes(count, weights)
    return np.asarray(np.minimum(sent, full_bytes))


def transfer_s(volume_bytes: Num, bytes_per_s: Num, *, replicas: int = 1, tree: bool = True) -> Floats:
    """Least time to bring the weights to every replica of the rollout pool.

    V/B down a broadcast tree; q V/B when the source sends to each replica itself. Unit: s. Source: F1.7.
    Ignores: the tree's filling time.
    """
    copies = 1 if tree else replicas
    return np.asarray(copies * np.asarray(volume_bytes, dtype=np.float64) / bytes_per_s)


def serial_publish_s(quantise_s: Num, reshard_s: Num, transfer_s: Num, verify_s: Num, switch_s: Num) -> Num:
    """T_pub when each stage waits for the one before: their sum. Unit: s. Source: F1.7."""
    return quantise_s + reshard_s + transfer_s + verify_s + switch_s


def pipelined_publish_s(
    quantise_s: float, reshard_s: float, transfer_s: float, verify_s: float, switch_s: float, *, chunks: int
) -> float:
    """T_pub when the weights flow through the first four stages in equal chunks: slowest stage and filling.

    max + (sum - max) / chunks, and the switch, which waits for all. Unit: s. Source: F1.7.
    """
    stages = (quantise_s, reshard_s, transfer_s, verify_s)
    slowest = max(stages)
    return slowest + (sum(stages) - slowest) / chunks + switch_s
