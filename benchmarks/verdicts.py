"""How the verdicts of `mapsearch check CASE.yaml` compare with what became of real cases.

    python -m benchmarks.verdicts [--cases DIR | --published] [--json]

The cases of `benchmarks/bug_reports` were transcribed from public issues and pull requests. A judgement sees `source`,
`model`, `hardware`, `mapping` and `run`; `verdict`, `because` and `known_numbers` are read here only, to compare.

Verdicts are compared by class: the words of `verdict:` say infeasible, out of memory, slow or feasible (`KINDS`).
Causes are compared by relation: `relation:` of a case was written from the text of its `because:`, not from our output,
in the words that are the keys of `SAME`; a case without it is read by the words of its `because:` (`WORDS`), which is
cruder (the table says how often both agree). `SAME` lists which of our relations are the same; weights are the larger
part of model states, so both words count for either. For a broken case ours is the deciding relation alone; for a
feasible one any relation at stake, since a reporter names the one that surprised.
An undetermined verdict is counted as undecidable with the fact that decides, never as right.

`--published` judges the published measured runs instead, which the judgement was not built on: all of them ran.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.published_cases import refusals
from mapsearch.inventories.case import Case
from mapsearch.judging.judge import judge, read_case
from mapsearch.verdict import Verdict

CASES = Path(__file__).parent / "bug_reports"

KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"\boom\b|out of memory", ("out of memory",)),
    (r"silently wrong|infeasible|not feasible|refused|illegal|rejected", ("infeasible",)),
    (r"no gain", ("slow", "feasible")),
    (r"slow", ("slow",)),
    (r"feasible|runs|works|fits|legal", ("feasible",)),
)
"""Words of a verdict: the classes of ours that agree with it. The first word counts. A change without gain runs."""

SAME: dict[str, tuple[str, ...]] = {
    "states": ("states", "weights"),
    "weights": ("weights", "states"),
    "activations": ("activations",),
    "logits": ("logits",),
    "allocator": ("allocator",),
    "routing_imbalance": ("routing_imbalance",),
    "host_memory": ("host_memory", "hardware.host_gb"),
    "hbm": ("hbm",),
    "device_grid": ("attention_grid",),
    "expert_grid": ("expert_grid",),
    "experts": ("experts_divide",),
    "folding": ("megatron_folding", "expert_grid"),
    "even_stages": ("even_stages", "layers_fill_stages"),
    "interleave": ("megatron_interleave", "torchtitan_interleave", "fsdp2_interleave", "fsdp2_interleave_multiple"),
    "batch": ("batch_divides",),
    "optimizer_instances": ("megatron_optimizer_instances",),
    "kv_heads": ("kv_heads_divide", "megatron_kv_heads", "mindspeed_kv_heads", "torchtitan_kv_heads"),
    "heads": ("heads_divide",),
    "ulysses_heads": ("ulysses_heads_divide",),
    "sequence": ("sequence_divides",),
    "packed_sequences": ("packed_sequence_divides",),
    "fp8_alignment": ("fp8_alignment",),
    "vocabulary": ("vocabulary_divides",),
    "ep_against_tp": ("torchtitan_ep_region", "torchtitan_ep_at_least_tp"),
    "sequence_parallel": ("megatron_sequence_parallel",),
    "ep_crosses": ("ep_crosses",),
    "ep_replicates": ("ep_replicates",),
    "exchange": ("ep_exposed", "ep_crosses"),
    "tensor_parallel": ("tp_exposed", "tp_crosses"),
    "context_parallel": ("cp_exposed",),
    "data_parallel": ("dp_exposed",),
    "bubble": ("bubble",),
    "launches": ("launch_bound",),
    "software": (),
    "links": (),
}
"""What `because:` names: which of our relations are the same. We know neither a software's age nor a broken link."""

WORDS: tuple[tuple[str, str], ...] = (
    (r"host ram|host memory|\bTB RAM|node RAM|CPU memory", "host_memory"),
    (r"fragment|expandable|allocator", "allocator"),
    (r"imbalanc|untrained router|varies|vary", "routing_imbalance"),
    (r"ulysses|\bSP \d+", "ulysses_heads"),
    (r"KV (heads|groups)|query groups", "kv_heads"),
    (r"sub-sequence|packed", "packed_sequences"),
    (r"FP8|MXFP8|% 16|% 32|block scal", "fp8_alignment"),
    (r"vocabulary padding|padding the vocabulary|vocab.* divide", "vocabulary"),
    (r"layers? .*(divide|over) .*PP|layers vanish|layers do not", "even_stages"),
    (r"microbatch(es)? .*%|interleaved", "interleave"),
    (r"optimizer instances", "optimizer_instances"),
    (r"EP must be >= TP|EP >= TP", "ep_against_tp"),
    (r"sequence parallel", "sequence_parallel"),
    (r"all-reduces the experts|replicated", "ep_replicates"),
    (r"NVLink domain|racks?\b|across nodes|leaves the node", "ep_crosses"),
    (r"EP may span|folding", "folding"),
    (r"num_experts must|experts? (do|does) not divide|experts? .* EP 3", "experts"),
    (r"EP \d+ cannot|ETP|EP must divide|ranks", "expert_grid"),
    (r"world \d+", "device_grid"),
    (r"logits", "logits"),
    (r"all-to-all|dispatch", "exchange"),
    (r"TP \d+ by|TP in the node", "tensor_parallel"),
    (r"bubble", "bubble"),
    (r"optimizer states|x 1[68]|bytes x|16 bytes|18 bytes|1[68] bytes", "states"),
    (r"weights", "weights"),
    (r"activations?|batch", "activations"),
    (r"fits?|peak|runs", "hbm"),
)
"""Words of a `because:` that stand for a relation, for cases without `relation:`. First match counts."""


@dataclass(frozen=True)
class Compared:
    """One case beside our verdict on it."""

    name: str
    case: Case
    ours: Verdict

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes that the case's own verdict allows."""
        text = str(self.case.verdict or "").lower()
        found = [(match.start(), kinds) for pattern, kinds in KINDS if (match := re.search(pattern, text))]
        return min(found, key=lambda one: one[0])[1] if found else ()

    @property
    def undecided(self) -> bool:
        """Whether we say that a missing fact decides."""
        return self.ours.verdict == "undetermined"

    @property
    def right(self) -> bool:
        """Whether our verdict is of the class of theirs."""
        return self.ours.verdict in self.classes

    @property
    def named(self) -> tuple[str, ...]:
        """The relations that the case names: as transcribed, else by the words of its because."""
        given = self.case.relation
        if given is not None:
            return (given,) if isinstance(given, str) else tuple(given)
        return self.by_words

    @property
    def by_words(self) -> tuple[str, ...]:
        """The relation that the words of `because:` stand for."""
        text = str(self.case.because or "")
        return tuple(name for pattern, name in WORDS if re.search(pattern, text, re.IGNORECASE))[:1]

    @property
    def cause_right(self) -> bool:
        """Whether ours is a relation that the case names."""
        ours = self.ours.relations if self.ours.verdict == "feasible" else [self.ours.relation]
        same = {relation for name in self.named for relation in SAME.get(name, ())}
        return self.right and bool(same & set(ours))


def compared(folder: Path) -> list[Compared]:
    """Every case of a folder with our verdict, by name."""
    found = []
    for path in sorted(folder.glob("*.yaml")):
        case = read_case(str(path))
        found.append(Compared(path.stem, case, judge(case, name=path.stem)))
    return found


def summary(cases: Sequence[Compared]) -> dict[str, Any]:
    """What `--json` prints."""
    wrong = [one for one in cases if not one.right and not one.undecided]
    blamed = [one for one in cases if one.right and not one.cause_right]
    refused = [
        one.name
        for one in cases
        if one.classes == ("feasible",) and one.ours.verdict in ("infeasible", "out of memory")
    ]
    labelled = [one for one in cases if one.case.relation is not None]
    return {
        "n": len(cases),
        "right": sum(one.right for one in cases),
        "undecidable": sum(one.undecided for one in cases),
        "wrong": [{"case": one.name, "ours": one.ours.verdict, "theirs": str(one.case.verdict)} for one in wrong],
        "cause_right": sum(one.cause_right for one in cases),
        "cause_wrong": [{"case": one.name, "ours": one.ours.relation, "theirs": list(one.named)} for one in blamed],
        "undecided": [
            {"case": one.name, "fact": one.ours.relation, "theirs": str(one.case.verdict)}
            for one in cases
            if one.undecided
        ],
        "feasible_but_refused": refused,
        "words_agree": [sum(bool(set(one.by_words) & set(one.named)) for one in labelled), len(labelled)],
    }


def table(cases: Sequence[Compared], told: dict[str, Any]) -> str:
    """The table for people."""
    lines = [f"{'case':44} {'theirs':30} {'ours':15} {'because of':30} cause"]
    for one in cases:
        mark = "open" if one.undecided else "" if one.right else "WRONG"
        cause = mark or ("same" if one.cause_right else f"theirs: {', '.join(one.named)}")
        theirs, ours = str(one.case.verdict)[:30], one.ours
        lines.append(f"{one.name[:44]:44} {theirs:30} {ours.verdict:15} {ours.relation[:30]:30} {cause}")
    decided = told["n"] - told["undecidable"]
    agree, labelled = told["words_agree"]
    lines += [
        "",
        f"{told['n']} cases: {told['right']} of {decided} decided ones right, {told['undecidable']} undecidable with "
        f"the fact that decides, {len(told['wrong'])} wrong",
        f"cause: the same relation in {told['cause_right']} of {decided}",
        f"feasible in reality but refused: {', '.join(told['feasible_but_refused']) or 'none'}",
        f"words of because alone agree with the transcribed relation in {agree} of {labelled}",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the comparison; 1 when a verdict is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=Path, default=CASES, metavar="DIR", help="folder of case files")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--published", action="store_true", help="judge published runs, all of which ran")
    chosen = parser.parse_args(arguments)
    if chosen.published:
        print(json.dumps(refusals(), indent=2))
        return 0
    if not chosen.cases.is_dir():
        parser.error(f"{chosen.cases}: no such folder; give one with case files (*.yaml)")
    cases = compared(chosen.cases)
    told = summary(cases)
    print(json.dumps(told, indent=2) if chosen.json else table(cases, told))
    return 1 if told["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
