"""What the user says beside the files, and the sources of what is filled in.

Contents: Wishes, Uplink, uplink_of, rate_of_option, sourced, rate_text,
time_text, rounded, COMMAND_LINE.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from mapsearch.errors import UsageError
from mapsearch.topologies.importers.base import Said
from mapsearch.units import RATE, TIME, parse, render

COMMAND_LINE = "command line"
Form = Literal["auto", "graph", "levels"]
_RATIO = re.compile(r"(\d+(?:\.\d+)?):1$")


@dataclass(frozen=True)
class Uplink:
    """How wide the links between switches are that the fabric gives no rate for."""

    ratio: float | None = 1.0
    """Capacity downwards over capacity upwards; None when a rate is given."""
    rate: Said | None = None
    """Of one link, one way."""
    source: str = "assumed: non-blocking, since the fabric's file gives no rates (--uplink changes it)"


@dataclass(frozen=True)
class Wishes:
    """Options of `topology import` and `topology compose`."""

    device: str | None = None
    name: str = ""
    nic_rate: Said | None = None
    link_rate: Said | None = None
    """Of one fast link, one way."""
    pcie: str | None = None
    """Generation of the devices' slots: gen3 to gen6."""
    nics: Literal["near", "all"] = "near"
    uplink: Uplink = field(default_factory=Uplink)
    only: str = ""
    """Nodes of the fabric to take, as a host list; all when it is empty."""
    form: Form = "auto"
    repair: bool = False


def uplink_of(text: str) -> Uplink:
    """`nonblocking`, an oversubscription such as `4:1`, or the rate of one link (`400Gb/s`). Raises UsageError."""
    if text in ("nonblocking", "non-blocking"):
        return Uplink(source=f"{COMMAND_LINE}: non-blocking")
    ratio = _RATIO.match(text)
    if ratio and float(ratio.group(1)) > 0:
        return Uplink(ratio=float(ratio.group(1)), source=f"{COMMAND_LINE}: {text} oversubscribed")
    try:
        return Uplink(ratio=None, rate=Said(parse(text, RATE), COMMAND_LINE), source=COMMAND_LINE)
    except ValueError as problem:
        raise UsageError(
            f"{text!r} is neither nonblocking, nor an oversubscription such as 4:1, nor the rate of a link: {problem}",
            field="--uplink",
        ) from None


def rate_of_option(text: str | None, option: str) -> Said | None:
    """A rate from the command line. Raises UsageError naming the option."""
    if text is None:
        return None
    try:
        value = parse(text, RATE)
    except ValueError as problem:
        raise UsageError(str(problem), field=option) from None
    if value <= 0.0:
        raise UsageError(f"{text!r} is no bandwidth; give more than 0", field=option)
    return Said(value, COMMAND_LINE)


def sourced(said: Said) -> str:
    """The source of a rate, and the rate, for a document."""
    return f"{said.source}; {rate_text(said.value)} each"


def rate_text(bytes_per_s: float) -> str:
    """A bandwidth as sentences and documents write it."""
    return render(rounded(bytes_per_s), RATE)


def time_text(seconds: float) -> str:
    """A latency as documents write it."""
    return render(rounded(seconds), TIME)


def rounded(value: float) -> float:
    """To six digits: no fact here is known better, and documents stay readable."""
    return float(f"{value:.6g}")
