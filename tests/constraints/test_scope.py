"""Relations of a grid must not read what differs between variants: the search asks them once per option."""

import numpy as np
import pytest

from mapsearch.costs.views import Facts
from mapsearch.frameworks import RELEASES
from mapsearch.inventories.base import load_inventory
from mapsearch.inventories.models import load_model
from mapsearch.inventories.profiles import profile_for
from mapsearch.inventories.run import Run
from mapsearch.solver.groups import along, attention_view, cell_view, expert_cell, expert_view, grids, groups_at
from mapsearch.solver.problem import problem_of
from mapsearch.topologies import fabric_of, load_topology


@pytest.mark.parametrize("framework", [*RELEASES, "megatron@0.8", "fsdp2@2.4", "mindspeed@0.8"])
@pytest.mark.parametrize("model", ["moe-5t", "deepseek-v3", "gpt3-175b"])
def test_grid_relations_have_no_variant_dimension(framework, model):
    fabric = fabric_of(load_topology("asic-64"))
    run = load_inventory(Run, "long-context-128k").replaced(
        framework=framework, placement={"tp": "inside", "ep": "inside"}
    )
    problem = problem_of(Facts(load_model(model), run, fabric, profile_for(fabric)))
    group = groups_at(problem, (8, 8), (1, 2))[0]
    attention, expert = grids(problem, group)
    views = {
        "attention": attention_view(cell_view(problem, group, along(attention.sizes[2], -1)), attention),
        "expert": expert_view(expert_cell(problem, group, np.array([1, 2, 4])), expert),
    }
    judged = 0
    for side, view in views.items():
        for relation in problem.side(side):
            for value in (relation.demand(view), relation.limit(view)):
                shape = (1,) * (7 - np.ndim(value)) + np.shape(value)
                assert shape[:-1] == (1,) * 6, relation.name
                judged += 1

    assert judged >= 16
