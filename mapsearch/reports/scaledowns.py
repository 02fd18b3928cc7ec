"""The views of a small run: its mapping, what it keeps domain by domain, and what it cannot say.

Contents: scale_down_lines, scale_down_markdown.
"""

from __future__ import annotations

from rich.text import Text

from mapsearch.reports import human
from mapsearch.reports.flat import markdown_table
from mapsearch.reports.layout import Column, flowed, grid, grid_width, section
from mapsearch.reports.tables import heading, resting_lines
from mapsearch.reports.verdicts import estimate_lines
from mapsearch.scaledown import Kept, ScaledDown

DOMAINS = {
    2: "long context",
    3: "training state",
    4: "routing",
    5: "expert parallel",
    6: "compute and schedule",
    7: "precision",
    10: "topology",
}
"""The contract's domains that a training run has something to say of (FORMULAS 1.9)."""


def scale_down_lines(found: ScaledDown, *, width: int, verbose: bool = False, footer: bool = True) -> list[Text]:
    """The whole view as styled lines no wider than `width` where that is possible."""
    width = max(width, 40)
    style = "bold green" if found.status == "optimal" else "bold red"
    lines = heading(found, _verdict(found), style, width)
    if found.mapping is not None:
        lines += [Text(""), *estimate_lines(found.mapping, width)]
        lines += section("The small run", _reduced(found, width), width=width)
        lines += section("What it keeps of the full run", _table(found.kept, width), width=width)
        lines += section("Rows of the contract that it confirms", _rows(found, width, verbose), width=width)
    return [*lines, *resting_lines([], found, width, verbose=verbose)] if footer else lines


def _verdict(found: ScaledDown) -> str:
    if found.mapping is None:
        return f"no run on {found.devices:,} devices keeps what has to be kept"
    step = human.seconds(found.mapping.step_time_s, 4)
    return f"{found.score} of {len(found.kept)} quantities kept on {found.devices:,} devices; step {step} predicted"


def _reduced(found: ScaledDown, width: int) -> list[Text]:
    model, run = found.inputs["model"], found.inputs["run"]
    part = " x ".join(f"{count} in each {name}" for name, count in found.units.items())
    moe = model.get("moe")
    experts = f", {moe['experts']} experts of which a token takes {moe['top_k']}" if moe else ""
    texts = [
        f"devices: {part}",
        f"model: {model['layers']} layers, {model['heads']} heads, {model['kv_heads']} KV heads{experts}, vocabulary "
        f"{model['vocab']:,}; hidden {model['hidden']:,} and head width as in the full model",
        f"run: {run['global_batch']:,} sequences of {run['sequence_length']:,} tokens",
    ]
    return [line for text in texts for line in flowed(text, width=width, indent=2)]


def _table(kept: list[Kept], width: int) -> list[Text]:
    columns = [
        Column("domain", [f"{one.domain} {DOMAINS[one.domain]}" for one in kept], left=True, style="dim"),
        Column("quantity", [one.name for one in kept], left=True, style="cyan"),
        Column("", ["kept" if one.kept else "not kept" for one in kept], left=True),
        Column("full run", [one.full for one in kept], left=True),
        Column("small run", ["" if one.kept else one.small for one in kept], left=True),
    ]
    wide = [*columns, Column("confirms", [one.confirms if one.kept else "" for one in kept], left=True)]
    for shown in (wide, columns, columns[1:]):
        if grid_width(shown) + 2 <= width:
            return grid(shown, indent=2)
    texts = [f"{one.name}: {'kept, ' if one.kept else 'not kept, '}{one.full}{'' if one.kept else f' but {one.small}'}"
             for one in kept]  # fmt: skip
    return [line for text in texts for line in flowed(text, width=width, indent=2)]


def _rows(found: ScaledDown, width: int, verbose: bool) -> list[Text]:
    """How many rows of each domain are the same in both contracts; with `verbose` which, and which are not."""
    texts = []
    for domain in dict.fromkeys(row.domain for row in found.rows):
        rows = [row for row in found.rows if row.domain == domain]
        yes, no = ([row.id for row in rows if row.confirmed is wanted] for wanted in (True, False))
        text = f"{domain}: {len(yes)} of {len(rows)}"
        if verbose:
            text += "".join(f"; {word}: {', '.join(ids)}" for word, ids in (("confirmed", yes), ("not", no)) if ids)
        texts.append(text)
    if found.only_full:
        told = f": {', '.join(found.only_full)}" if verbose else ""
        texts.append(f"{len(found.only_full)} rows are the full run's alone{told}")
    return [line for text in texts for line in flowed(text, width=width, indent=2)]


def scale_down_markdown(found: ScaledDown) -> str:
    """The result as a Markdown document with one table."""
    verdict, inputs = scale_down_lines(found, width=10**6, footer=False)[:2]
    titles = ("domain", "quantity", "", "full run", "small run", "confirms")
    rows = [
        (f"{one.domain} {DOMAINS[one.domain]}", one.name, "kept" if one.kept else "not kept", one.full, one.small,
         one.confirms)
        for one in found.kept
    ]  # fmt: skip
    return "\n\n".join([f"**{verdict.plain}**", inputs.plain, markdown_table(titles, rows)]) + "\n"
