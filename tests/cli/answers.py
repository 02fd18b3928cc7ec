"""Made-up answers with realistic numbers, for the tests of everything that shows an answer."""

from __future__ import annotations

from mapsearch.answer import (
    Answer,
    Binding,
    CheckReport,
    Conflict,
    Margin,
    Proof,
    Provenance,
    RankedMapping,
    Relaxation,
    Space,
)

GB = 1e9
PROVENANCE = Provenance(
    version="0.1.0",
    model="moe-5t",
    run="long-context-128k",
    topology="asic",
    profile="asic-assumed",
    input_sha256={"model": "0" * 64},
    assumptions=[
        "topology asic: device hbm 96 GB (assumed)",
        "topology asic: device hbm bandwidth 2.4 TB/s (assumed)",
        "topology asic: board bandwidth 100 GB/s (assumed)",
        "topology asic: rack bandwidth 25 GB/s (assumed)",
        "topology asic: pod bandwidth 12.5 GB/s (assumed)",
        "profile asic: GEMM reaches 62 % of the peak (assumed)",
        "run long-context-128k: reserve 15 % (assumed)",
    ],
    libraries={"ortools": "9.15"},
)


def margins() -> list[Margin]:
    return [
        Margin(
            relation="hbm", demand=74.1 * GB, limit=81.6 * GB, unit="bytes", margin=7.5 * GB, reason="HBM of stage 0"
        ),
        Margin(relation="ep_inside", demand=0, limit=0, unit="", margin=0, origin="placement", reason="EP inside rack"),
        Margin(
            relation="ep_divides_experts", demand=0, limit=0, unit="", margin=0, origin="physics", reason="384 / 64"
        ),
        Margin(relation="exposed", demand=0.124, limit=1.0, unit="share", margin=0.876, reason="exposed share"),
        Margin(relation="fix:tp", demand=8, limit=8, unit="", margin=0, origin="user", reason="tp is fixed to 8"),
    ]


def mapping(rank: int = 1, *, step_s: float = 12.31, **changes: object) -> RankedMapping:
    sizes = {"tp": 8, "cp": 16, "dp": 4, "pp": 8, "etp": 1, "ep": 64, "edp": 8, "vpp": 5, "micro_batch": 1, "zero": 1}
    fields: dict[str, object] = {
        "rank": rank,
        "sizes": sizes,
        "choices": {
            "schedule": "interleaved",
            "recompute": "norm+activation",
            "offload": "none",
            "cp_kind": "ring",
            "dispatcher": "fixed-all-to-all",
        },
        "placement": {
            "tp": {"board": 8},
            "cp": {"rack": 8, "pod": 2},
            "dp": {"pod": 4},
            "pp": {"pod": 8},
            "ep": {"board": 8, "rack": 8},
            "edp": {"pod": 8},
        },
        "devices": 4096,
        "microbatches": 64,
        "layers_per_stage": [10] * 8,
        "step_time_s": step_s,
        "tokens_per_s": 33_554_432 / step_s,
        "mfu": 0.3123,
        "hfu": 0.3401,
        "breakdown_s": {"compute": step_s * 0.71, "bubble": step_s * 0.1, "exposed": step_s * 0.19},
        "communication_s": {"tp": 1.9, "cp": 0.8, "ep": 3.1, "dp": 0.6, "pp": 0.2},
        "exposed_s": {"tp": 0.4, "cp": 0.0, "ep": 1.9, "dp": 0.03, "pp": 0.0},
        "exposed_fraction": 0.19,
        "peak_memory_bytes": 74.1 * GB,
        "memory_limit_bytes": 81.6 * GB,
        "worst_stage": 0,
        "memory_bytes": {"weights": 20.1 * GB, "gradients": 24 * GB, "optimizer": 10 * GB, "activations": 20 * GB},
        "memory_by_stage_bytes": [74.1 * GB, 70.0 * GB],
        "margins": margins(),
        "binding": Binding(
            relation="hbm",
            lever="HBM per device +6.1 GB",
            relax_by=6.1 * GB,
            unit="bytes",
            unlock="PP16 -> PP8",
            gain=0.091,
            step_time_s=step_s * 0.909,
        ),
        "binding_note": "",
    }
    return RankedMapping(**{**fields, **changes})  # type: ignore[arg-type]


def optimal(count: int = 10) -> Answer:
    mappings = [mapping(rank, step_s=12.31 + 0.07 * rank) for rank in range(1, count + 1)]
    if count > 1:
        words = {**mappings[0].choices, "schedule": "1f1b", "recompute": "full"}
        mappings[1] = mapping(2, step_s=12.45, choices=words, binding=None, binding_note="no single relaxation helps")
    return Answer(
        status="optimal",
        bound_s=mappings[0].step_time_s if mappings else None,
        gap=0.0,
        space=Space(mappings=57_000_000_000, cells=4321, pairs_evaluated=98_765, grid_options=75_339),
        proofs=[
            Proof(backend="cpsat", status="proven", kind="all cells", bound_s=12.38, seconds=3.21),
            Proof(backend="exhaustive", status="proven", kind="exhaustion", bound_s=12.38, seconds=0.31),
        ],
        provenance=PROVENANCE,
        mappings=mappings,
        notes=["all 4,096 devices are used"],
        timings_s={"search": 0.4, "proof": 3.2},
    )


def feasible(**changes: object) -> Answer:
    fields = {
        "status": "feasible",
        "bound_s": 11.5,
        "gap": 0.071,
        "proofs": [Proof(backend="cpsat", status="not proven", kind="all cells", bound_s=11.5, seconds=30.0)],
    }
    return optimal().model_copy(update={**fields, **changes})


def infeasible() -> Answer:
    return Answer(
        status="infeasible",
        bound_s=None,
        gap=None,
        space=Space(mappings=12_345, cells=321, pairs_evaluated=12_345),
        proofs=[Proof(backend="exhaustive", status="proven", kind="exhaustion", seconds=0.4)],
        provenance=PROVENANCE.model_copy(update={"topology": "asic-64"}),
        mappings=[],
        conflicts=[
            Conflict(
                relations=["hbm", "devices"],
                sentences=[
                    "the model states alone need 1.25 TB per device, and 81.6 GB of HBM may be used",
                    "the cluster has 64 devices, so no grid divides the states further",
                ],
            )
        ],
        relaxations=[
            Relaxation(
                lever="devices 64 -> 1,024",
                relation="hbm",
                from_value=64,
                to_value=1024,
                unit="devices",
                mapping="TP8 CP1 DP8 PP16 | ETP1 EP64 EDP1, 1f1b, full recompute",
                step_time_s=98.2,
            ),
            Relaxation(
                lever="HBM 96 GB -> 1.9 TB",
                relation="hbm",
                from_value=96 * GB,
                to_value=1900 * GB,
                unit="bytes",
                mapping="TP8 CP8 DP1 PP1 | ETP1 EP64 EDP1, 1f1b, full recompute",
                step_time_s=612.0,
            ),
        ],
        rejections={"hbm": 12_345, "vpp_divides_layers": 3021},
    )


def unknown(**changes: object) -> Answer:
    return infeasible().model_copy(
        update={"status": "unknown", "conflicts": [], "relaxations": [], "proofs": [], "rejections": {}, **changes}
    )


def report(*, feasible: bool = True) -> CheckReport:
    every = margins()
    if not feasible:
        every[0] = Margin(
            relation="hbm",
            demand=90.2 * GB,
            limit=81.6 * GB,
            unit="bytes",
            margin=-8.6 * GB,
            reason="stage 0 needs 90.2 GB of 81.6 GB: recompute more, or raise PP",
        )
    return CheckReport(feasible=feasible, mapping=mapping(), margins=every, provenance=PROVENANCE, notes=["one note"])
