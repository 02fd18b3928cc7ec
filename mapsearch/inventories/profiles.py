"""Profiles by name, by path, and for a fabric.

Contents: load_profile, profile_for, profile_names, profile_sources.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from mapsearch.errors import MissingFact, listed, near_miss
from mapsearch.inventories.base import catalogue_names, load_inventory
from mapsearch.inventories.profile import Profile
from mapsearch.records import Record

if TYPE_CHECKING:
    from mapsearch.topologies.fabric import Fabric


def load_profile(name: str) -> Profile:
    """A profile by path or built-in name. Raises InputError."""
    return load_inventory(Profile, name)


def profile_names() -> list[str]:
    """Names of the built-in profiles, sorted."""
    return catalogue_names("mapsearch.inventories", "profiles")


def _plain(device: str) -> str:
    """A device name without case, blanks and punctuation: `H100 SXM` and `h100-sxm` are one."""
    return re.sub(r"[^a-z0-9]", "", device.lower())


@cache
def _by_device() -> dict[str, Profile]:
    found: dict[str, Profile] = {}
    for name in profile_names():
        profile = load_profile(name)
        for device in profile.devices:
            found[_plain(device)] = profile
    return found


def profile_for(fabric: Fabric) -> Profile:
    """The built-in profile that names the fabric's device.

    Raises MissingFact when none does: efficiencies are not guessed from another device.
    """
    known = _by_device()
    device = fabric.device.name
    if _plain(device) not in known:
        raise MissingFact(
            f"no built-in profile names this device{near_miss(_plain(device), known)}; give one with --profile "
            f"(a file, or {listed(profile_names())})",
            file=fabric.name,
            field=f"device {device!r}",
        )
    return known[_plain(device)]


def profile_sources(profile: Profile) -> dict[str, str]:
    """Where each number of a profile came from, by dotted field name, parts included."""
    result = dict(profile.sources)
    for name in type(profile).model_fields:
        part = getattr(profile, name)
        if isinstance(part, Record):
            result |= {f"{name}.{field}": source for field, source in part.sources.items()}
    return result
