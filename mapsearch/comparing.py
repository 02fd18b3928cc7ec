"""The Python API of comparisons: `compare` puts answers, or fronts, side by side.

Contents: compare, read_document, Document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from mapsearch import documents
from mapsearch.answer import SCHEMA, Answer, Provenance, RankedMapping
from mapsearch.comparison import Change, Comparison, Moved, Term
from mapsearch.dominance import coverages, crossings, hypervolumes
from mapsearch.errors import InputError, UsageError, listed
from mapsearch.front import FRONT_SCHEMA, Front
from mapsearch.records import first_problem

R = TypeVar("R", bound=BaseModel)
NOTHING = 1e-12
"""Share of the whole below which a part is rounding."""


@dataclass(frozen=True)
class Document:
    """An answer or a front with the name it is shown by, and the rank whose terms are compared."""

    name: str
    content: Answer | Front
    rank: int | None = None

    @property
    def mappings(self) -> list[RankedMapping]:
        """Its mappings, ranked."""
        if isinstance(self.content, Answer):
            return self.content.mappings
        return [point.mapping.model_copy(update={"rank": point.rank}) for point in self.content.points]

    @property
    def front(self) -> Front:
        """Its front. Raises UsageError for an answer."""
        if isinstance(self.content, Front):
            return self.content
        raise UsageError(f"{self.name} is an answer and no front")

    @property
    def chosen(self) -> RankedMapping | None:
        """The mapping of the rank asked for, else the first. Raises InputError."""
        found = next((one for one in self.mappings if one.rank == (self.rank or 1)), None)
        if found is None and self.rank is not None:
            raise InputError(f"has no mapping of rank {self.rank}; it holds {len(self.mappings)}", file=self.name)
        return found


def compare(*given: str | Answer | Front | Document, names: Sequence[str] | None = None) -> Comparison:
    """Two or more answers, or two or more fronts: what changed in the inputs and in the mappings, term by term.

    Each is an object (or a `Document` of one) or a JSON file of `solve` or `pareto`; `file#RANK` compares the terms of
    that rank. The first is what the others are compared with. Raises InputError, UsageError.
    """
    if len(given) < 2:
        raise UsageError("takes two or more answers, or two or more fronts", field="compare")
    read = [_read(one) for one in given]
    shown = _named(read, names)
    _refuse_mixed(shown)
    fronts = [one.content for one in shown if isinstance(one.content, Front)]
    kind: Literal["answers", "fronts"] = "fronts" if fronts else "answers"
    chosen = [one.chosen for one in shown]
    labels = [one.name for one in shown]
    about: dict[str, Any] = {}
    if fronts:
        volumes, reference, notes = hypervolumes(fronts)
        about = {
            "objectives": fronts[0].objectives,
            "coverage": coverages(fronts, labels),
            "hypervolume": volumes,
            "reference": reference,
            "crossings": crossings(fronts, labels),
        }
    else:
        notes = []
    without = [one.name for one, mapping in zip(shown, chosen, strict=True) if mapping is None]
    if without:
        notes = [*notes, f"{listed(without)} holds no mapping, so no terms are compared"]
    there = [mapping for mapping in chosen if mapping is not None] if not without else []
    return Comparison(
        kind=kind,
        names=labels,
        statuses=[one.content.status for one in shown],
        changes=changes([one.content.provenance for one in shown]),
        mappings=moves([one.mappings for one in shown]),
        compared=["" if mapping is None else mapping_text(mapping) for mapping in chosen],
        step_time_s=terms([one.breakdown_s for one in there], [one.step_time_s for one in there], "step time"),
        memory_bytes=terms([one.memory_bytes for one in there], [one.peak_memory_bytes for one in there], "peak"),
        notes=notes,
        **about,
    )


def _read(given: str | Answer | Front | Document) -> Document:
    if isinstance(given, Document):
        return given
    return read_document(given) if isinstance(given, str) else Document("", given)


def read_document(name: str) -> Document:
    """An answer or a front from `file` or `file#RANK`. Raises InputError."""
    path, mark, rank = name.rpartition("#") if "#" in name else (name, "", "")
    if mark and not (rank.isdigit() and int(rank) > 0):
        raise InputError(f"the rank after # is a whole number from 1 on, not {rank!r}", file=path)
    data = documents.load(path)
    schema = data.get("schema") if isinstance(data, dict) else None
    accepted: dict[str, type[Answer] | type[Front]] = {SCHEMA: Answer, FRONT_SCHEMA: Front}
    if schema not in accepted:
        said = f"has the schema {schema!r}" if schema else "says no schema"
        raise InputError(f"{said}; compare reads {listed(accepted)} (solve or pareto with --format json)", file=path)
    return Document(name, _validated(accepted[schema], data, path), int(rank) if rank else None)


def _validated(kind: type[R], data: Any, path: str) -> R:
    try:
        return kind.model_validate(data)
    except ValidationError as problem:
        raise first_problem(kind, problem, path) from None


def _named(read: list[Document], names: Sequence[str] | None) -> list[Document]:
    """Names as given, else file names without folder and ending; numbered where they would be alike."""
    if names is not None and len(names) != len(read):
        raise UsageError(f"{len(names)} names for {len(read)} documents; give one for each", field="names")
    labels = list(names) if names else [_short(one.name) or f"{i}" for i, one in enumerate(read, start=1)]
    twice = {label for label in labels if labels.count(label) > 1}
    labels = [f"{label} ({i})" if label in twice else label for i, label in enumerate(labels, start=1)]
    return [Document(label, one.content, one.rank) for label, one in zip(labels, read, strict=True)]


def _short(name: str) -> str:
    path, mark, rank = name.rpartition("#") if "#" in name else (name, "", "")
    return f"{Path(path).stem}{mark}{rank}" if path else ""


def _refuse_mixed(shown: list[Document]) -> None:
    """Refuse an answer beside a front, and fronts of different objectives. Raises UsageError."""
    first = shown[0]
    for other in shown[1:]:
        if type(first.content) is not type(other.content):
            kinds = [
                f"{one.name} is {'a front' if isinstance(one.content, Front) else 'an answer'}"
                for one in (first, other)
            ]
            raise UsageError(f"{' and '.join(kinds)}; compare answers with answers and fronts with fronts")
        if isinstance(first.content, Front) and isinstance(other.content, Front):
            mine, theirs = first.content.objectives, other.content.objectives
            if set(mine) != set(theirs):
                raise UsageError(
                    f"{first.name} is a front of {', '.join(mine)}, {other.name} of {', '.join(theirs)}; the "
                    "objectives must be the same"
                )


def changes(about: list[Provenance]) -> list[Change]:
    """What the documents rest on and do not share, inputs first."""
    found = []

    def note(what: str, values: list[str]) -> None:
        if len(set(values)) > 1:
            found.append(Change(what=what, values=values))

    for kind in ("model", "run", "topology", "profile"):
        note(kind, [str(getattr(one, kind)) for one in about])
        digests = [one.input_sha256.get(kind, "") for one in about]
        note(f"{kind} (contents)", [digest[:12] for digest in digests])
    note("devices", ["" if one.devices is None else f"{one.devices:,}" for one in about])
    for option in sorted({name for one in about for name in one.overrides}):
        note(f"--{option.replace('_', '-')}", [", ".join(one.overrides.get(option, [])) for one in about])
    note("mapsearch", [one.version for one in about])
    for library in sorted({name for one in about for name in one.libraries}):
        note(library, [one.libraries.get(library, "") for one in about])
    shared = set(about[0].assumptions).intersection(*(one.assumptions for one in about[1:]))
    note("assumptions", ["; ".join(line for line in one.assumptions if line not in shared) for one in about])
    return found


def mapping_text(mapping: RankedMapping) -> str:
    """Sizes and choices in a line: what makes a mapping the same in two documents."""
    sizes = " ".join(f"{name}={value}" for name, value in mapping.sizes.items())
    return f"{sizes} {' '.join(f'{name}={word}' for name, word in mapping.choices.items())}"


def moves(lists: list[list[RankedMapping]]) -> list[Moved]:
    """Every mapping of every document with its rank in each, in the order of the last, then of the first."""
    by_text = [{mapping_text(mapping): mapping for mapping in mappings} for mappings in lists]
    order = dict.fromkeys(text for known in (by_text[-1], by_text[0], *by_text[1:-1]) for text in known)
    found = []
    for text in order:
        here = [known.get(text) for known in by_text]
        ranks = [None if one is None else one.rank for one in here]
        found.append(
            Moved(
                mapping=text,
                ranks=ranks,
                step_times_s=[None if one is None else one.step_time_s for one in here],
                move=_move(ranks[0], ranks[-1]),
            )
        )
    return found


def _move(before: int | None, now: int | None) -> Literal["same", "up", "down", "new", "gone", "elsewhere"]:
    if before is None or now is None:
        return "elsewhere" if before is now else "new" if before is None else "gone"
    return "same" if before == now else "up" if now < before else "down"


def gains_and_losses(parts: Sequence[Term], longest: int, shortest: int) -> tuple[str, str]:
    """Of two mappings' parts of the step, those on which the second spends most more, and saves most, in words.

    The whole, which stands last, is left out; empty where there are none.
    """
    *rows, _ = parts
    grown = sorted((row for row in rows if row.differences[1] > 0.0), key=lambda row: -row.differences[1])
    shrunk = sorted((row for row in rows if row.differences[1] < 0.0), key=lambda row: row.differences[1])
    more = ", ".join(f"{row.name} +{row.differences[1]:,.3g} s" for row in grown[:longest])
    return more, ", ".join(f"{row.name} -{-row.differences[1]:,.3g} s" for row in shrunk[:shortest])


def terms(parts: list[dict[str, float]], wholes: list[float], whole: str) -> list[Term]:
    """Parts that any of the mappings has, in the order of the first, and the whole last."""
    least = NOTHING * max(wholes, default=0.0)
    names = dict.fromkeys(name for one in parts for name, value in one.items() if abs(value) > least)
    rows = [(name, [one.get(name, 0.0) for one in parts]) for name in names]
    rows += [(whole, wholes)] if wholes else []
    return [Term(name=name, values=values, differences=[v - values[0] for v in values]) for name, values in rows]
