"""Which layers stand on which stage."""

import pytest

from mapsearch.axes import Schedule
from mapsearch.costs.stages import layout
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.model import Model

LLAMA = load_inventory(Model, "llama-3.1-405b")


def shape(layers: int) -> Model:
    return Model(**{**LLAMA.model_dump(), "layers": layers})


@pytest.mark.parametrize(
    ("layers", "pp", "expected"),
    [
        (126, 8, (15, 16, 16, 16, 16, 16, 16, 15)),  # Llama 3, arXiv 2407.21783, section 3.3.2
        (70, 12, (5, *(6,) * 10, 5)),  # BLOOM, arXiv 2211.05100, with 72 = 70 + 2 over 12 stages
        (22, 8, (2, 3, 3, 3, 3, 3, 3, 2)),  # zero bubble, arXiv 2401.10241, table 3
        (128, 8, (16,) * 8),
    ],
)
def test_embedding_and_loss_count_as_layers_where_that_makes_stages_even(layers, pp, expected) -> None:
    assert layout(pp, Schedule.ONE_F_ONE_B, model=shape(layers), length=8192.0).layers == expected


def test_stages_that_would_be_left_without_a_layer_get_one() -> None:
    """2 layers on 4 stages is no layout; 6 layers and two ends would leave none on the first and last of 8."""
    with pytest.raises(ValueError, match="cannot fill"):
        layout(8, Schedule.ONE_F_ONE_B, model=shape(6), length=8192.0)
    assert min(layout(8, Schedule.ONE_F_ONE_B, model=shape(14), length=8192.0).layers) == 1
