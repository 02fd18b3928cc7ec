"""Parameter counts against published totals and the worked numbers of FORMULAS 1.2, 1.3, 3.1, 3.6 and 8."""

import math

import numpy as np
import pytest

from mapsearch.costs import parameters as count
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.model import Mla, Model, Moe
from mapsearch.inventories.recipes import RECIPES


def model(name: str) -> Model:
    return load_inventory(Model, name)


def tiny(**changes: object) -> Model:
    shape = {
        "name": "tiny",
        "layers": 4,
        "hidden": 8,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 2,
        "ffn": 16,
        "vocab": 256,
    }
    return Model(**{**shape, **changes})


def test_e1_totals() -> None:
    """FORMULAS 8: the parameters of the 5T vector, to the printed digits."""
    totals = count.ledger(model=model("moe-5t"))
    assert totals.experts / 1e12 == pytest.approx(4.92847, abs=5e-6)
    assert totals.shared / 1e9 == pytest.approx(30.578, abs=5e-4)
    assert totals.total / 1e12 == pytest.approx(4.959053, abs=5e-7)
    assert totals.shared_ratio * 100 == pytest.approx(0.616619, abs=5e-7)
    assert totals.active / 1e9 == pytest.approx(235.9316, abs=5e-5)


def test_e1_local_parameters() -> None:
    """FORMULAS 8: what one rank of TP4, EP64, ETP1 holds of five layers."""
    moe = model("moe-5t")
    assert count.expert_parameters(1, 384, model=moe) == 160_432_128
    assert 5 * count.expert_parameters(1, 64, model=moe) / 1e9 == pytest.approx(4.81296, abs=5e-6)
    assert 5 * count.moe_layer_parameters(4, model=moe) / 1e9 == pytest.approx(0.43266, abs=5e-6)
    assert count.embedding_parameters(4, model=moe) / 1e9 == pytest.approx(0.50332, abs=5e-6)


def test_shape_identity() -> None:
    """FORMULAS 1.1: (1 - sigma) P = 3 h f E L, so h f L = (1 - sigma) 4.34028e9 at P = 5e12 and E = 384."""
    assert round(5e12 / (3 * 384) / 1e9, 5) == 4.34028
    totals = count.ledger(model=model("moe-5t"))
    product = (1 - totals.shared_ratio) * totals.total / (3 * 384)
    assert product == pytest.approx(12288 * 4352 * 80)


@pytest.mark.parametrize(("sigma", "active"), [(0.0, 208.33), (0.02, 304.17), (0.05, 447.92), (0.10, 687.5)])
def test_three_scales(sigma: float, active: float) -> None:
    """FORMULAS 1.3: the ledger's active count is [sigma + (1 - sigma) K/E] P of its own sigma; at 5T as printed."""
    totals = count.ledger(model=model("moe-5t"))
    share = totals.shared_ratio + (1 - totals.shared_ratio) * 16 / 384
    assert totals.active == pytest.approx(share * totals.total, rel=1e-12)
    # The same weights with the shared part scaled to the sigma asked for, at P = 5e12.
    slope = (totals.active - totals.shared) / totals.experts
    assert (sigma + (1 - sigma) * slope) * 5e12 / 1e9 == pytest.approx(active, abs=5e-3)
    assert totals.assignments_per_token == 16


def test_deepseek_v3() -> None:
    """FORMULAS 3.1, first vector check: layer, main model, MTP, and the three active counts."""
    ours = model("deepseek-v3")
    assert count.attention_parameters(1, model=ours) == 187_107_328
    totals = count.ledger(model=ours)
    embeddings = 2 * 7168 * 129280
    assert totals.total / 1e9 == pytest.approx(671.026, abs=5e-4)
    assert totals.mtp / 1e9 == pytest.approx(11.610, abs=5e-4)
    assert (totals.total + totals.mtp) / 1e9 == pytest.approx(682.636, abs=5e-4)
    assert (totals.total + totals.mtp + embeddings) / 1e9 == pytest.approx(684.49, abs=5e-3)
    assert totals.active / 1e9 == pytest.approx(37.55, abs=5e-3)
    assert totals.active_without_input_embedding / 1e9 == pytest.approx(36.63, abs=5e-3)
    assert totals.active_without_embeddings / 1e9 == pytest.approx(35.70, abs=5e-3)


def test_mla_replicates_only_its_down_projections() -> None:
    """FORMULAS 3.1: (r_q + r_kv + d_r) h = 15.14 M of 187.1 M (8.1 %) stay on every rank, and two norms."""
    ours = model("deepseek-v3")
    limit = count.attention_parameters(2.0**40, model=ours)
    assert limit == pytest.approx((1536 + 512 + 64) * 7168 + 1536 + 512, rel=1e-6)
    assert limit / 1e6 == pytest.approx(15.14, abs=5e-3)
    assert limit / count.attention_parameters(1, model=ours) == pytest.approx(0.081, abs=5e-4)


@pytest.mark.parametrize(
    ("name", "total", "active", "digits"),
    [
        ("gpt-oss-120b", 116.83, 5.13, 2),  # arXiv 2508.10925 table 1; active leaves the input embedding out
        ("mixtral-8x7b", 46.7, 12.9, 1),  # Mistral AI, December 2023
        ("mixtral-8x22b", 140.6, 39.2, 1),  # Mistral AI, April 2024 (141 B, 39 B active)
        ("qwen3-235b", 235.1, 22.2, 1),  # arXiv 2505.09388 (235 B, 22 B active)
        ("kimi-k2", 1026, 33, 0),  # model card (1 T, 32 B active: between with and without embeddings)
        ("llama-3.1-8b", 8.03, 8.03, 2),  # model cards
        ("llama-3.1-70b", 70.55, 70.55, 2),
        ("llama-3.1-405b", 405.85, 405.85, 2),
        ("gpt3-175b", 174.6, 174.6, 1),  # arXiv 2005.14165 table D.1: 174,600 M
    ],
)
def test_published_totals(name: str, total: float, active: float, digits: int) -> None:
    totals = count.ledger(model=model(name))
    counted = totals.active_without_input_embedding if name == "gpt-oss-120b" else totals.active
    assert round(totals.total / 1e9, digits) == total
    assert round(counted / 1e9, digits) == active


@pytest.mark.parametrize("name", ["moe-5t", "deepseek-v3", "gpt-oss-120b", "gpt3-175b", "qwen3-235b"])
def test_ranks_add_up_to_the_ledger(name: str) -> None:
    """Layer by layer at TP = 1 the per-rank counts are the ledger, but for vocabulary padding."""
    ours = model(name)
    layers = ours.dense_layers * count.dense_layer_parameters(1, model=ours)
    layers += ours.moe_layers * (count.moe_layer_parameters(1, model=ours) + count.expert_parameters(1, 1, model=ours))
    ends = count.embedding_parameters(1, model=ours) + count.output_parameters(1, model=ours)
    ends -= count.tied_copy_parameters(1, 1, model=ours)
    padding = (math.ceil(ours.vocab / 128) * 128 - ours.vocab) * ours.hidden
    padding *= 1 if ours.tied_embeddings else 2
    totals = count.ledger(model=ours)
    assert layers + ends - padding == pytest.approx(totals.total, rel=1e-12)
    assert sum(totals.parts.values()) == totals.total


@pytest.mark.parametrize("name", ["moe-5t", "gpt3-175b", "gpt-oss-120b"])
def test_tensor_parallel_splits_everything_but_the_replicated_bucket(name: str) -> None:
    """The sum over TP ranks exceeds the whole by (TP-1) times what is replicated: affine in 1/TP."""
    ours = model(name)
    tp = np.array([1, 2, 4, 8])
    for part in (count.attention_parameters, count.dense_ffn_parameters, count.moe_layer_parameters):
        values = part(tp, model=ours)
        whole, replicated = np.polynomial.polynomial.polyfit(1 / tp, values, 1)[::-1]
        assert np.allclose(values, whole / tp + replicated, rtol=1e-9)
        assert replicated >= -1e-3


def test_kv_heads_are_copied_beyond_their_number() -> None:
    """FORMULAS 9: Megatron copies KV heads when TP is a multiple of them, so a rank never holds less than one."""
    ours = tiny()
    projections = lambda tp, kv: 8 * (4 / tp + 2 * kv) * 2 + 4 / tp * 2 * 8  # noqa: E731
    assert count.attention_parameters(2, model=ours) == projections(2, 1)
    assert count.attention_parameters(4, model=ours) == projections(4, 1)


def test_biases_sinks_and_norms_by_hand() -> None:
    """A layer small enough to count by hand: h=8, 4 query and 2 KV heads of 2."""
    base = 8 * (4 + 4) * 2 + 8 * 8
    assert count.attention_parameters(1, model=tiny()) == base
    assert count.attention_parameters(1, model=tiny(qkv_bias=True)) == base + 16
    assert count.attention_parameters(1, model=tiny(output_bias=True)) == base + 8
    assert count.attention_parameters(1, model=tiny(attention_sinks=True)) == base + 4
    assert count.attention_parameters(1, model=tiny(qk_norm=True)) == base + 4
    assert count.attention_parameters(1, model=tiny(qk_norm=True, qk_norm_width="all")) == base + 8 + 4
    assert count.dense_ffn_parameters(2, model=tiny()) == 3 * 8 * 16 / 2
    assert count.dense_ffn_parameters(2, model=tiny(gated_ffn=False, linear_bias=True)) == 2 * 8 * 16 / 2 + 16 / 2 + 8
    assert count.norm_parameters(model=tiny()) == 16
    assert count.norm_parameters(model=tiny(norm_bias=True, norms_per_layer=4)) == 64
    moe = tiny(moe=Moe(experts=4, top_k=2, expert_ffn=6, shared_ffn=6, shared_gate=True, router_bias=True))
    assert count.router_parameters(model=moe) == 4 * 8 + 4
    assert count.shared_expert_parameters(2, model=moe) == 3 * 8 * 6 / 2 + 8
    assert count.expert_parameters(2, 4, model=moe) == 3 * 8 * 6 / 2
    biased = tiny(moe=Moe(experts=4, top_k=2, expert_ffn=6, expert_bias=True))
    assert count.expert_parameters(2, 2, model=biased) == 2 * (3 * 8 * 6 / 2 + 2 * 6 / 2 + 8)


def test_mla_without_query_compression_by_hand() -> None:
    """DeepSeek-V2-Lite's form: queries are projected straight from the hidden state and have no norm."""
    mla = Mla(q_rank=0, kv_rank=3, nope_dim=2, rope_dim=1, value_dim=2)
    ours = tiny(attention="mla", mla=mla, kv_heads=4, head_dim=3)
    query, down, up, out = 8 * 4 * 3, 3 * (8 + 1) + 8 * 1, 3 * 4 * (2 + 2), 4 * 2 * 8
    assert count.attention_parameters(1, model=ours) == query + down + up + out
    assert count.attention_parameters(2, model=ours) == down + (query + up + out) / 2


def test_padded_vocabulary() -> None:
    """FORMULAS 3.1: ceil(V/(128 TP)) 128 TP, so the local share is a multiple of 128 rows."""
    ours = tiny(vocab=1000)
    assert count.embedding_parameters(np.array([1, 2, 8]), model=ours).tolist() == [8 * 1024, 8 * 512, 8 * 128]
    assert count.output_parameters(8, model=ours) == 8 * 128 + 8


def test_tied_model_holds_one_table_on_one_stage() -> None:
    ours = tiny(tied_embeddings=True)
    assert count.tied_copy_parameters(2, np.array([1, 2]), model=ours).tolist() == [8 * 128, 0]
    assert count.tied_copy_parameters(2, 1, model=tiny()) == 0


@pytest.mark.parametrize(("recipe", "bytes_per_parameter"), list(zip(RECIPES, [18, 16, 14, 20, 16], strict=True)))
def test_recipes(recipe: str, bytes_per_parameter: float) -> None:
    """FORMULAS 3.6, column without sharding."""
    state = RECIPES[recipe]
    parts = (state.weight_bytes, state.gradient_bytes, state.master_bytes, state.moment_bytes)
    assert sum(parts) == bytes_per_parameter
