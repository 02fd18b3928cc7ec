"""A contract held against measurements: agreement, verdict, and which formula is off.

Contents: held_against, read_measurement, template_text.

A row without a limit is broken by a measurement outside its band. Where parts of a quantity were measured too, the
difference is laid to them: parts that add up in its own unit, factors in logarithms.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from statistics import median

from mapsearch import documents
from mapsearch.contract import Attribution, Contract, Found, Part, Row, Verdict
from mapsearch.contracting.case import margin_of, worst_of
from mapsearch.errors import InputError, near_miss
from mapsearch.inventories.base import validate
from mapsearch.inventories.measurement import Figure, Measurement


def read_measurement(path: str) -> Measurement:
    """A file of measured quantities. Raises InputError naming file and field."""
    return validate(Measurement, documents.load(path), file=path)


def held_against(contract: Contract, measurement: Measurement, *, file: str = "") -> Contract:
    """The contract with what was measured, the verdicts on it, and what the differences are made of.

    Raises InputError for an id that the contract has not, another unit, or a value without a source.
    """
    known = {row.id: row for row in contract.rows}
    figures = {name: figure for name, figure in measurement.quantities.items() if figure.value is not None}
    for name, figure in measurement.quantities.items():
        _check(name, figure, known, file or measurement.name)
    held = {name: _held(known[name], figure) for name, figure in figures.items()}
    domains = []
    for domain in contract.domains:
        rows = [held.get(row.id, row) for row in domain.rows]
        domains.append(domain.model_copy(update={"rows": rows, "verdict": worst_of(row.verdict for row in rows)}))
    told = contract.model_copy(
        update={
            "domains": domains,
            "verdict": worst_of(domain.verdict for domain in domains),
            "measured_with": measurement.name,
        }
    )
    return told.model_copy(update={"attributions": list(_attributions(told))})


def _check(name: str, figure: Figure, known: dict[str, Row], file: str) -> None:
    field = f"quantities.{name}"
    if name not in known:
        raise InputError(
            f"is no quantity of this contract{near_miss(name, known)}; `mapsearch contract --template` writes them all",
            file=file,
            field=field,
        )
    row = known[name]
    if figure.unit != row.unit:
        raise InputError(f"is in {figure.unit!r}; give it in {row.unit!r}", file=file, field=f"{field}.unit")
    if figure.value is None:
        return
    if not figure.source.strip():
        raise InputError("is missing; say how and where the value was measured", file=file, field=f"{field}.source")
    if (figure.word is not None) != (row.unit == "word"):
        wanted = "a word" if row.unit == "word" else "a number, or a list of numbers"
        raise InputError(f"holds {figure.value!r}; {name} takes {wanted}", file=file, field=f"{field}.value")


def _held(row: Row, figure: Figure) -> Row:
    """A row with what was measured of it."""
    if figure.word is not None:
        return _held_word(row, figure.word, figure.source)
    values = figure.numbers
    value = median(values)
    predicted = row.predicted if isinstance(row.predicted, float) else None
    difference = value / predicted - 1.0 if predicted else None
    inside = row.band is not None and row.band.low <= value <= row.band.high
    agreement = "no band" if row.band is None else "agrees" if inside else "differs"
    margin = margin_of(value, row.limit, row.sense)
    verdict: Verdict = "broken" if agreement == "differs" else "holds"
    if margin is not None and not row.advisory:
        verdict = "holds" if margin >= 0.0 else "broken"
    found = Found(
        value=value,
        low=min(values),
        high=max(values),
        samples=len(values),
        source=figure.source,
        difference=difference,
        agreement=agreement,
        sentence=_sentence(row, difference, agreement, margin),
    )
    return row.model_copy(update={"measured": found, "verdict": verdict, "margin": margin})


def _held_word(row: Row, word: str, source: str) -> Row:
    """Words agree or not; what nobody had said holds when it is yes."""
    agrees = word == row.predicted or (row.predicted == "not said" and word == "yes")
    found = Found(
        value=word,
        low=None,
        high=None,
        samples=1,
        source=source,
        difference=None,
        agreement="agrees" if agrees else "differs",
        sentence="as expected" if agrees else f"{word} in the place of {row.predicted}",
    )
    return row.model_copy(update={"measured": found, "verdict": "holds" if agrees else "broken"})


def _sentence(row: Row, difference: float | None, agreement: str, margin: float | None) -> str:
    apart = "" if difference is None else f"{difference:+.1%} from the prediction"
    words = {
        "agrees": "within the band",
        "differs": f"outside the band: {row.formula}, or an input of it, is off",
        "no band": "nobody has said how far off this prediction may be",
    }[agreement]
    kept = "" if margin is None else ("; keeps the limit" if margin >= 0.0 else "; breaks the limit")
    return f"{apart}, {words}{kept}".lstrip(", ")


def _attributions(contract: Contract) -> Iterator[Attribution]:
    rows = {row.id: row for row in contract.rows}
    for row in rows.values():
        if row.measured is None or not isinstance(row.predicted, float) or isinstance(row.measured.value, str):
            continue
        if row.parts:
            found = _of_sum(row, rows)
        elif row.factors:
            found = _of_product(row, rows)
        else:
            found = None
        if found is not None:
            yield found


def _numbers(row: Row | None) -> tuple[float, float] | None:
    """Predicted and measured of a row that has both as numbers."""
    if row is None or row.measured is None or not isinstance(row.predicted, float):
        return None
    return None if isinstance(row.measured.value, str) else (row.predicted, row.measured.value)


def _of_sum(row: Row, rows: dict[str, Row]) -> Attribution | None:
    pairs = {name: _numbers(rows.get(name)) for name in row.parts}
    return _attributed(row, rows, "sum", pairs, {name: 1 for name in row.parts})


def _of_product(row: Row, rows: dict[str, Row]) -> Attribution | None:
    pairs = {name: _numbers(rows.get(name)) for name in row.factors}
    return _attributed(row, rows, "product", pairs, row.factors)


def _attributed(
    row: Row, rows: dict[str, Row], kind: str, pairs: dict[str, tuple[float, float] | None], powers: dict[str, int]
) -> Attribution | None:
    whole = _numbers(row)
    assert whole is not None
    if kind == "product" and min(*whole, *(min(pair) for pair in pairs.values() if pair)) <= 0.0:
        return None

    def apart(pair: tuple[float, float], power: int) -> float:
        return power * math.log(pair[1] / pair[0]) if kind == "product" else pair[1] - pair[0]

    difference = apart(whole, 1)
    parts = [
        Part(
            id=name,
            formula=rows[name].formula,
            predicted=pair[0],
            measured=pair[1],
            difference=apart(pair, powers[name]),
            share=apart(pair, powers[name]) / difference if difference else 0.0,
        )
        for name, pair in pairs.items()
        if pair is not None
    ]
    parts.sort(key=lambda part: (-abs(part.difference), part.id))
    missing = [name for name, pair in pairs.items() if pair is None]
    unexplained = difference - sum(part.difference for part in parts)
    return Attribution(
        id=row.id,
        unit="log ratio" if kind == "product" else row.unit,
        kind=kind,
        difference=difference,
        parts=parts,
        unexplained=unexplained,
        missing=missing,
        sentence=_told(row, difference, parts, unexplained, missing),
    )


def _told(row: Row, difference: float, parts: list[Part], unexplained: float, missing: list[str]) -> str:
    """The attribution in a sentence."""
    if not parts:
        first = ", ".join(missing[:3])
        return f"{row.id}: no part of it was measured, so no formula can be named; measure {first} first"
    largest = parts[0]
    rest = f"; {len(missing)} parts were not measured" if missing else ""
    left = f", {abs(unexplained / difference):.0%} is left over" if difference else ""
    if not difference or abs(largest.difference) <= abs(unexplained):
        return f"{row.id}: most of the difference lies in no measured part{left}{rest}"
    return f"{row.id}: {largest.share:.0%} of the difference is {largest.id} ({largest.formula}){left}{rest}"


def template_text(contract: Contract, line: str) -> str:
    """A file of measurements for this contract with every value left open, what to record beside it."""
    text = [
        f"# Measured quantities of {line}",
        "# Fill in what was measured: a number in the unit given, a list of numbers, or a word; and its source.",
        "name: measured",
        f"mapping: {json.dumps(line, ensure_ascii=False)}",
        "quantities:",
    ]
    for domain in contract.domains:
        text.append(f"  # --- {domain.number}. {domain.title}: {domain.predicate}")
        for row in domain.rows:
            shown = f"{row.predicted:.6g}" if isinstance(row.predicted, float) else row.predicted or "not predicted"
            text += [
                f"  # {row.meaning}; predicted {shown}",
                f"  # record: {row.recipe.record}",
                f"  # compute: {row.recipe.compute}",
                f"  {json.dumps(row.id)}: {{value: null, unit: {json.dumps(row.unit)}, source: ''}}",
            ]
    return "\n".join(text) + "\n"
