"""The views of a contract: the ten domains as lines, Markdown and records.

Contents: contract_lines, contract_markdown, value_text, tags_text.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from mapsearch.contract import Attribution, Contract, DomainContract, Row
from mapsearch.reports import human
from mapsearch.reports.flat import markdown_table
from mapsearch.reports.layout import Column, flowed, grid, grid_width, section
from mapsearch.reports.tables import placement_text, sizes_text
from mapsearch.reports.verdicts import estimate_lines

STYLES = {"holds": "green", "broken": "bold red", "not given": "yellow", "must be measured": "dim"}
_RATES = {"bytes/s": "B/s", "tokens/s": "tokens/s", "FLOP": "FLOP", "FLOP per token": "FLOP"}
INDENT = 2
WIDEST = 32
"""Cells of a word in the column of predictions; longer ones are cut, the other formats have them whole."""


def value_text(value: float | str | None, unit: str) -> str:
    """A value as people read it, with its unit."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if unit in _RATES:
        return human.scaled(value, _RATES[unit])
    if human.scaled_unit(unit):
        return human.measured(value, unit)
    plain = unit if unit not in ("1", "ratio") else ""
    if abs(value) < 1e6 and not float(value).is_integer():
        return f"{value:,.4g} {plain}".rstrip()
    return f"{human.plain_number(value)} {plain}".rstrip()


def _band_text(row: Row) -> str:
    """How far off a prediction may be; counts must be the same."""
    if row.band is None or not isinstance(row.predicted, float):
        return "no band" if isinstance(row.predicted, float) else ""
    if row.band.rests_on.startswith("a count"):
        return "exact"
    return f"{value_text(row.band.low, row.unit)} to {value_text(row.band.high, row.unit)}"


def _limit_text(row: Row) -> str:
    if row.limit is None:
        return ""
    sign = {"<=": "≤", ">=": "≥", "=": "="}[row.sense]
    return f"{sign} {value_text(row.limit, row.unit)}"


def tags_text(row: Row) -> str:
    """Which kinds of sources a row rests on, the weakest first: `2 assumed, 1 measured`."""
    order = ("not said", "assumed", "fitted", "cited", "datasheet", "measured", "chosen")
    counts = {tag: sum(origin.tag == tag for origin in row.origins) for tag in order}
    return ", ".join(f"{count} {tag}" for tag, count in counts.items() if count)


def contract_lines(contract: Contract, *, width: int, verbose: bool = False, footer: bool = True) -> list[Text]:
    """The whole view of a contract as styled lines no wider than `width` where that is possible."""
    width = max(width, 40)
    words = contract.verdict.upper()
    lines = flowed(f"{words}: {_summary(contract)}", width=width)
    lines[0].stylize(STYLES[contract.verdict].replace("dim", "bold"), 0, len(words))
    about = contract.provenance
    inputs = f"{about.model} · {about.run} · {about.topology} · profile {about.profile} · {contract.source}"
    lines += [*flowed(inputs, width=width, style="dim"), Text(""), *estimate_lines(contract.mapping, width)]
    for domain in contract.domains:
        lines += section(_title(domain), _domain_lines(domain, width, verbose), width=width)
    lines += section("Which formula is off", _attribution_lines(contract.attributions, width), width=width)
    if footer and contract.notes:
        notes = [line for note in contract.notes for line in flowed(f"Note: {note}", width=width, style="dim")]
        lines += [Text(""), *notes]
    return lines


def _summary(contract: Contract) -> str:
    counts: dict[str, int] = {}
    for row in contract.rows:
        counts[row.verdict] = counts.get(row.verdict, 0) + 1
    told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    held = f" against {contract.measured_with}" if contract.measured_with else ""
    return f"{len(contract.rows)} quantities in {len(contract.domains)} domains{held}: {told}"


def _title(domain: DomainContract) -> str:
    return f"{domain.number}. {domain.title}: {domain.predicate} ({domain.verdict})"


def _columns(rows: Sequence[Row], width: int) -> list[Column]:
    predicted = [value_text(row.predicted, row.unit)[:WIDEST] for row in rows]
    columns = [
        Column("quantity", [row.id for row in rows], left=True),
        Column("predicted", predicted),
        Column("limit", [_limit_text(row) for row in rows]),
        Column("verdict", [row.verdict for row in rows], left=True),
        Column("band", [_band_text(row) for row in rows], left=True),
        Column("rests on", [tags_text(row) for row in rows], left=True),
    ]
    if any(row.measured for row in rows):
        measured = [value_text(row.measured.value, row.unit)[:WIDEST] if row.measured else "" for row in rows]
        columns.insert(2, Column("measured", measured))
    for title in ("rests on", "band", "limit"):
        if grid_width(columns) + INDENT <= width:
            break
        columns = [column for column in columns if column.title != title]
    return columns


def _domain_lines(domain: DomainContract, width: int, verbose: bool) -> list[Text]:
    if not domain.rows:
        return flowed(f"nothing to record: {', '.join(domain.missing)}", width=width, indent=2, style="dim")
    head, *body = grid(_columns(domain.rows, width), indent=INDENT)
    lines = [head]
    for row, line in zip(domain.rows, body, strict=True):
        if row.verdict in ("broken", "not given"):
            line.stylize(STYLES[row.verdict])
        lines.append(line)
        if verbose:
            lines += _anatomy(row, width)
        elif row.verdict == "broken" or (row.measured and row.measured.agreement == "differs"):
            said = row.measured.sentence if row.measured else row.why
            lines += flowed(said, width=width, indent=6, style="red")
    for fact in domain.missing:
        lines += flowed(f"missing: {fact}", width=width, indent=2, style="yellow")
    return lines


def _anatomy(row: Row, width: int) -> list[Text]:
    """What a row means, where it comes from and how it is measured."""
    origins = "; ".join(
        f"{origin.document} {origin.file}: {origin.field}{f' {origin.value}' if origin.value else ''} ({origin.tag})"
        for origin in row.origins
    )
    parts = [
        f"{row.meaning} ({row.formula})",
        f"from {origins}" if origins else "",
        f"record {row.recipe.record}; {row.recipe.compute}",
        row.why,
        f"measured: {row.measured.sentence} ({row.measured.source})" if row.measured else "",
    ]
    return [line for part in parts if part for line in flowed(part, width=width, indent=6, style="dim")]


def _attribution_lines(found: Sequence[Attribution], width: int) -> list[Text]:
    lines: list[Text] = []
    for one in found:
        lines += flowed(one.sentence, width=width, indent=2)
        for part in one.parts:
            apart = f"{part.difference:+.4g}" if one.kind == "product" else _apart(part.difference, one.unit)
            lines += flowed(f"{part.id} {apart} ({part.share:.0%}, {part.formula})", width=width, indent=6, style="dim")
    return lines


def _apart(difference: float, unit: str) -> str:
    return f"{'+' if difference >= 0 else '-'}{value_text(abs(difference), unit)}"


def contract_markdown(contract: Contract) -> str:
    """The contract as a Markdown document with a table per domain."""
    about = contract.provenance
    body = [
        f"# Contract: {sizes_text(contract.mapping)}",
        f"**{contract.verdict}**: {_summary(contract)}",
        f"{about.model}, {about.run}, {about.topology}, profile {about.profile}; {placement_text(contract.mapping)}",
    ]
    for domain in contract.domains:
        body.append(f"## {domain.number}. {domain.title}\n\n{domain.predicate}: **{domain.verdict}**")
        if domain.missing:
            body.append("\n".join(f"- missing: {fact}" for fact in domain.missing))
        if domain.rows:
            body.append(markdown_table(_TITLES, [_cells(row) for row in domain.rows]))
    if contract.attributions:
        body.append("## Which formula is off")
        body.append("\n".join(f"- {one.sentence}" for one in contract.attributions))
    body.append("\n".join(f"- {note}" for note in contract.notes))
    return "\n\n".join(part for part in body if part) + "\n"


_TITLES = (
    "quantity",
    "meaning",
    "predicted",
    "band",
    "limit",
    "measured",
    "verdict",
    "why",
    "formula",
    "rests on",
    "record",
    "compute",
)


def _cells(row: Row) -> tuple[str, ...]:
    origins = "; ".join(f"{origin.document}.{origin.field} ({origin.tag})" for origin in row.origins)
    return (
        f"`{row.id}`",
        row.meaning,
        value_text(row.predicted, row.unit),
        _band_text(row),
        _limit_text(row),
        value_text(row.measured.value, row.unit) if row.measured else "",
        f"**{row.verdict}**" if row.verdict == "broken" else row.verdict,
        row.measured.sentence if row.measured else row.why,
        row.formula,
        origins,
        row.recipe.record,
        row.recipe.compute,
    )
