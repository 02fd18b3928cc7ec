"""What recomputation costs in time: which part of a forward pass the backward pass runs again.

Contents: again, norm_again_s, activation_again_s, mla_up_share, QUANTITIES.
"""

from __future__ import annotations

from mapsearch import arrays as np
from mapsearch.axes import Recompute
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.quantity import Num, quantity
from mapsearch.topologies.fabric import Fabric


def again(recompute: Num, modules: int) -> Num:
    """1 where any of `modules` (or everything) is computed again, else 0. Axes: recompute."""
    return np.where(np.asarray(recompute) & (modules | Recompute.FULL), 1.0, 0.0)


def only(recompute: Num, module: int) -> Num:
    """1 where `module` is computed again and not everything is. Axes: recompute."""
    codes = np.asarray(recompute)
    return np.where((codes & module != 0) & (codes & Recompute.FULL == 0), 1.0, 0.0)


@quantity(unit="s", source="FORMULAS 3.3; a norm reads and writes its tokens once, BF16")
def norm_again_s(tokens: Num, *, model: Model, fabric: Fabric, profile: Profile) -> Num:
    """Seconds to run one layer's norms again: 2 passes of 2h bytes per token and norm, at HBM bandwidth.

    Axes: tokens. Unit: s per layer and microbatch.
    """
    traffic = tokens * model.norms_per_layer * 4.0 * model.hidden
    return traffic / (fabric.device.hbm_bytes_per_s * profile.memory_bandwidth)


@quantity(unit="s", source="FORMULAS 3.3: reads the fc1 output (2 or 1 halves), writes the activation, BF16")
def dense_activation_again_s(tp: Num, tokens: Num, *, model: Model, fabric: Fabric, profile: Profile) -> Num:
    """Seconds to run one dense FFN's activation function again.

    Axes: tp, tokens. Unit: s per layer and microbatch. The gathered tokens * tp rows have 1/tp of the width.
    """
    traffic = tokens * 2.0 * model.ffn * model.ffn_matrices + 0.0 * tp
    return traffic / (fabric.device.hbm_bytes_per_s * profile.memory_bandwidth)


@quantity(unit="s", source="FORMULAS 3.3: 4fK read, 2fK written per token, shared experts likewise")
def moe_activation_again_s(tokens: Num, *, model: Model, fabric: Fabric, profile: Profile) -> Num:
    """Seconds to run the expert activation function of one MoE layer again, routed and shared.

    Axes: tokens. Unit: s per layer and microbatch. Ignores: padding rows.
    """
    if model.moe is None:
        return 0.0 * tokens
    width = model.moe.expert_ffn * model.moe.top_k + model.moe.shared_ffn
    traffic = tokens * 2.0 * width * model.ffn_matrices
    return traffic / (fabric.device.hbm_bytes_per_s * profile.memory_bandwidth)


def mla_up_share(model: Model) -> float:
    """Share of an attention layer's projection work that the MLA up-projections are; 0 without MLA."""
    if model.mla is None:
        return 0.0
    mla, n = model.mla, model.heads
    up = mla.q_rank * n * model.qk_dim + mla.kv_rank * n * (mla.nope_dim + mla.value_dim)
    query_down = mla.q_rank * model.hidden if mla.q_rank else model.hidden * n * model.qk_dim
    rest = query_down + (mla.kv_rank + mla.rope_dim) * model.hidden + n * mla.value_dim * model.hidden
    return up / (up + rest)


QUANTITIES = (norm_again_s, dense_activation_again_s, moe_activation_again_s)
