"""Domain 7, precision: formats, bytes of scales, what is compared with the BF16 baseline (FORMULAS 1.7, 2.3).

Contents: rows, COMPARED.
"""

from __future__ import annotations

from functools import partial

from mapsearch.contract import Row
from mapsearch.contracting.case import ContractCase
from mapsearch.contracting.rollout_side import precision_rows
from mapsearch.costs import volumes
from mapsearch.costs.compute import ALIGNMENT
from mapsearch.costs.parameters import ledger
from mapsearch.costs.publishing import FORMATS, publish_bytes

COMPARED = {
    "loss": ("training loss over the same batches", "largest difference of the smoothed loss from the baseline's"),
    "logprob": ("log-probabilities of held-out tokens", "mean and largest difference from the baseline's"),
    "router": ("experts chosen for held-out tokens, every layer", "share of the choices that differ"),
    "outputs": ("hidden states of held-out tokens after every layer", "relative error of each layer's output"),
}
"""What must stay within tolerance: what to record of either run, and how it is compared (F1.9)."""
FORMS = {"fp8-tensor": "fp8-tensor", "fp8-block": "fp8-block", "mxfp8": "mxfp8", "nvfp4": "nvfp4"}


def rows(case: ContractCase) -> list[Row]:
    """Formats of this run, bytes of scales, and the comparisons that a narrow format owes."""
    return [*_formats(case), *_scales(case), *_comparisons(case), *precision_rows(case)]


def narrow(case: ContractCase) -> bool:
    """True when some linear layers run in FP8 or NVFP4."""
    return case.run.narrow_share(case.model.layers) > 0.0


def _formats(case: ContractCase) -> list[Row]:
    run = case.run
    row = partial(case.row, domain=7, unit="word", formula="F2.3")
    trace = "names of the GEMM kernels, by layer"
    return [
        row(
            "precision.linear",
            meaning="format of the linear layers",
            predicted=run.precision,
            origins=["run.precision"],
            record=trace,
            compute="read them",
        ),
        row(
            "precision.rest",
            meaning="format of attention core, router and output head",
            predicted=run.half_format,
            origins=["run.precision"],
            record=trace,
            compute="read them; the router's product may run in FP32",
        ),
        row(
            "precision.narrow_share",
            meaning="share of the layers whose linear layers run narrower than 16 bits",
            predicted=run.narrow_share(case.model.layers),
            origins=["run.half_precision_layers", "run.precision"],
            record=trace,
            compute="layers with narrow kernels over layers",
        ).model_copy(update={"unit": "share"}),
        row(
            "precision.baseline",
            meaning="the 16-bit run that narrow formats are compared with",
            predicted=run.half_format if not narrow(case) else "needed",
            origins=["run.precision"],
            record="a run of the same model and data with precision bf16",
            compute="its loss, log-probabilities, router choices and outputs",
            verdict="must be measured",
            why="this run is its own baseline" if not narrow(case) else "without it no error can be told",
        ),
    ]


def _scales(case: ContractCase) -> list[Row]:
    """Bytes of scales of all weights, of one dispatch, and rows of padding that the format needs."""
    if not narrow(case):
        return []
    run, count = case.run, ledger(model=case.model).total
    weights = FORMATS[FORMS[run.precision]]
    scales = float(publish_bytes(count, weights)) - count * weights.weight_bytes
    row = partial(case.row, domain=7, formula="F1.7, F2.3", origins=["run.precision"])
    told = [
        row(
            "precision.weight_scale_bytes",
            meaning="scales of one copy of all weights, edge blocks not counted",
            predicted=scales,
            unit="bytes",
            record="shapes of the scale tensors of one rank of every kind",
            compute="sum of their bytes; edge blocks add to it",
        ),
        row(
            "precision.row_alignment",
            meaning="rows of one expert are padded to a multiple of this",
            predicted=ALIGNMENT[run.precision],
            unit="rows",
            record="arguments of the grouped GEMM kernels",
            compute="rows of each group and valid rows of each group",
        ),
    ]
    if case.model.moe is not None and run.fp8:
        share = volumes.SCALE_SHARE[run.precision]
        elements = case.tokens * case.model.moe.top_k * case.model.hidden
        told.append(
            row(
                "precision.dispatch_scale_bytes",
                meaning="scales that travel with one dispatch of one rank",
                predicted=share * elements,
                unit="bytes",
                record="tensors that enter the dispatch of one layer",
                compute="bytes of the scale tensors",
            )
        )
    return told


def _comparisons(case: ContractCase) -> list[Row]:
    """The error budget: what is compared; no tolerance is made up."""
    needed = narrow(case)
    told = []
    for name, (record, compute) in COMPARED.items():
        told.append(
            case.row(
                f"precision.error.{name}",
                7,
                f"{name} of this run against the 16-bit baseline",
                None if needed else 0.0,
                "1",
                kind="model",
                formula="F1.9",
                origins=["run.precision"],
                record=f"{record}, of this run and of the baseline",
                compute=compute,
                verdict="must be measured" if needed else "holds",
                why="a tolerance is yours to state; the model predicts no numerical error"
                if needed
                else "nothing runs narrower than 16 bits",
            )
        )
    return told
