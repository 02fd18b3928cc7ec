"""Names and known releases of the frameworks whose legality rules are data (`constraints/frameworks`).

Contents: RELEASES, WHOSE, named, newest, within, range_text, number.

`megatron@0.14` is a framework with a release; without one the rules of the newest known release hold.
"""

from __future__ import annotations

import re

from mapsearch.errors import listed, near_miss

RELEASES: dict[str, tuple[str, ...]] = {
    "megatron": ("0.8", "0.9", "0.10", "0.11", "0.12", "0.13", "0.14", "0.15", "0.16"),
    "torchtitan": ("0.1", "0.2", "main"),
    "deepspeed": ("0.18",),
    "fsdp2": ("2.4", "2.5", "2.6", "2.7", "2.8", "2.9"),
    "mindspeed": ("0.8", "0.12"),
    "none": ("0",),
}
"""Framework: releases, oldest first. Megatron core's own numbers; those of the core that MindSpeed patches; PyTorch's
for FSDP2 with torch.distributed.pipelining; `main` is torchtitan of September 2026."""
WHOSE = {
    "megatron": "Megatron core",
    "torchtitan": "torchtitan",
    "deepspeed": "DeepSpeed",
    "fsdp2": "PyTorch",
    "mindspeed": "MindSpeed on Megatron core",
    "none": "no framework",
}
"""How a sentence calls a framework and its releases."""
_LAST = (10**9,)


def number(release: str) -> tuple[int, ...]:
    """A release as numbers that compare; `main` is after all others, patch releases belong to their minor one."""
    if release == "main":
        return _LAST
    return tuple(int(part) for part in release.split("."))[:2]


def newest(framework: str) -> str:
    """The newest known release."""
    return RELEASES[framework][-1]


def named(text: str) -> tuple[str, str]:
    """Framework and release of `megatron` or `megatron@0.14`; the newest release where none is given.

    Raises ValueError naming what is accepted.
    """
    name, mark, release = text.partition("@")
    if name not in RELEASES:
        known = tuple(RELEASES)
        raise ValueError(f"{name!r} is not a framework whose rules are known{near_miss(name, known)}; {listed(known)}")
    if not mark:
        return name, newest(name)
    if release not in RELEASES[name] and not _between(name, release):
        raise ValueError(f"{name} has no known release {release!r}; known: {listed(RELEASES[name])}")
    return name, release


def _between(name: str, release: str) -> bool:
    """True for a patch release of a known release."""
    minors = [number(known) for known in RELEASES[name] if known != "main"]
    return name != "none" and bool(re.fullmatch(r"\d+\.\d+(\.\w+)*", release)) and number(_plain(release)) in minors


def _plain(release: str) -> str:
    return ".".join(release.split(".")[:2])


def within(release: str, since: str, before: str) -> bool:
    """Whether a rule that holds from `since` (on) and ends `before` holds in a release; empty bounds are open."""
    here = number(release if release == "main" else _plain(release))
    return (not since or here >= number(since)) and (not before or here < number(before))


def range_text(framework: str, since: str, before: str) -> str:
    """The releases of a range in words: `Megatron core before 0.16`, `torchtitan up to 0.2`."""
    whose = WHOSE[framework]
    end = f"before {before}"
    if before == "main":
        end = f"up to {RELEASES[framework][-2]}"
    if since and before:
        return f"{whose} from {since} {'to ' if before != 'main' else ''}{end}"
    if since:
        return f"{whose} from {since} on"
    return f"{whose} {end}" if before else whose
