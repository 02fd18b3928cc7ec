"""The Python API of contracts: `contract_of` makes one, and holds it against measurements.

Contents: contract_of.
"""

from __future__ import annotations

from mapsearch.answer import RankedMapping
from mapsearch.api import band_of, mapping_given
from mapsearch.contract import Contract, DomainContract
from mapsearch.contracting.case import ContractCase, Pool, worst_of
from mapsearch.contracting.domains import DOMAINS, Domain
from mapsearch.contracting.measured import held_against, read_measurement
from mapsearch.costs.estimate import Point, layout_trouble, point_of
from mapsearch.errors import InputError
from mapsearch.expert_load import ExpertLoad
from mapsearch.inputs import Inputs, read_for, read_inputs
from mapsearch.inventories.mapping import Mapping
from mapsearch.inventories.measurement import Measurement
from mapsearch.inventories.model import Model
from mapsearch.inventories.profile import Profile
from mapsearch.inventories.run import Run
from mapsearch.solver.problem import problem_of
from mapsearch.solver.provenance import provenance_of
from mapsearch.solver.ranking import ranked_mapping
from mapsearch.topologies.fabric import Fabric
from mapsearch.topologies.spec import Topology


def contract_of(
    mapping: str | Mapping | RankedMapping,
    *,
    model: str | Model = "moe-5t",
    run: str | Run = "long-context-128k",
    topology: str | Topology | Fabric = "asic",
    profile: str | Profile | None = None,
    devices: int | None = None,
    measured: str | Measurement | None = None,
    pool: Pool | None = None,
    load: ExpertLoad | None = None,
    source: str = "mapping",
) -> Contract:
    """The contract of one mapping in ten domains; `measured` holds it against a file of measurements.

    `pool` is what is known of the rollout side; domains 8 and 9 name what is missing of it. `load` is a result of
    `mapsearch experts`, whose loads domain 4 then takes. `source` is what the
    mapping is called in the origins of the rows.
    Raises MapsearchError when an input cannot be read, or the mapping has no place or no layout on the cluster.
    """
    wanted = mapping_given(mapping)
    inputs = read_for(read_inputs(model, run, topology, profile, devices), wanted)
    point = point_of(wanted, inputs.facts)
    trouble = layout_trouble(point)
    if trouble:
        raise InputError(f"cannot be estimated, so it has no contract: {trouble}", file=source)
    case = ContractCase(
        point=point,
        named={named.kind: named for named in inputs.named},
        source=source,
        band=band_of(inputs.facts),
        pool=pool or Pool(),
        load=load,
    )
    contract = _contract(case, point, inputs)
    if measured is None:
        return contract
    if isinstance(measured, str):
        return held_against(contract, read_measurement(measured), file=measured)
    return held_against(contract, measured)


def _contract(case: ContractCase, point: Point, inputs: Inputs) -> Contract:
    domains = [_domain(domain, case) for domain in DOMAINS]
    ranked = ranked_mapping(1, point, problem_of(inputs.facts).relations)
    notes = [*inputs.notes, *point.notes]
    for margin in ranked.margins:
        if margin.margin < 0.0:
            notes.append(f"the mapping breaks {margin.relation}: {margin.reason}")
    if case.band is None:
        notes.append("no run on this device was measured, so predicted times have no band")
    return Contract(
        source=case.source,
        mapping=ranked,
        verdict=worst_of(domain.verdict for domain in domains),
        domains=domains,
        provenance=provenance_of(inputs.named, inputs.devices),
        notes=notes,
    )


def _domain(domain: Domain, case: ContractCase) -> DomainContract:
    rows = domain.rows(case)
    missing = list(dict.fromkeys(row.why for row in rows if row.verdict == "not given"))
    return DomainContract(
        number=domain.number,
        title=domain.title,
        predicate=domain.predicate,
        verdict=worst_of(row.verdict for row in rows),
        missing=missing if rows else ["the model has no experts"],
        rows=rows,
    )
