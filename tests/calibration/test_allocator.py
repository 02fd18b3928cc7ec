"""The share that allocators reserve beyond live tensors: its fit, its file, and what it changes."""

import math
from pathlib import Path

import numpy as np
import pytest

from mapsearch.calibration.allocator import Fragmentation, Held, fit_fragmentation, held, with_fragmentation
from mapsearch.calibration.measured import Measured
from mapsearch.calibration.predict import Memory
from mapsearch.calibration.rows import load_cases
from mapsearch.calibration.shipped import memory_document, read_memory, shipped
from mapsearch.inventories.profiles import load_profile

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "published"


def rows(source: str, family: str, share: float, count: int = 20) -> list[Held]:
    noise = np.random.default_rng(1).normal(0.0, 0.01, count)
    return [Held(source, family, math.log1p(share) + float(each)) for each in noise]


def test_the_shares_of_families_are_found_again() -> None:
    fitted = fit_fragmentation(rows("a", "megatron", 0.05) + rows("b", "fsdp", 0.20))
    assert fitted.share("megatron") == pytest.approx(0.05, abs=0.01)
    assert fitted.share("fsdp") == pytest.approx(0.20, abs=0.01)
    assert fitted.rows == 40
    assert fitted.sources == ("a", "b")


def test_an_unknown_family_has_what_all_share() -> None:
    fitted = fit_fragmentation(rows("a", "megatron", 0.05) + rows("b", "fsdp", 0.20))
    assert 0.05 < fitted.share("internevo") < 0.20
    assert fit_fragmentation([]) == Fragmentation()


def test_wild_rows_count_little() -> None:
    wild = [Held("a", "megatron", math.log(2.0))]
    assert fit_fragmentation(rows("a", "megatron", 0.05) + wild).share("megatron") == pytest.approx(0.05, abs=0.01)


def test_a_share_is_never_negative() -> None:
    assert fit_fragmentation(rows("a", "megatron", -0.1)).share("megatron") == 0.0


def test_the_file_gives_the_fit_back() -> None:
    fitted = fit_fragmentation(rows("a", "megatron", 0.05) + rows("b", "fsdp", 0.20))
    again = read_memory(memory_document(fitted))
    assert again.share("fsdp") == pytest.approx(fitted.share("fsdp"), abs=1e-3)
    assert (again.rows, again.sources) == (fitted.rows, fitted.sources)


def test_shipped_profiles_carry_the_share_of_their_family() -> None:
    base, fit = load_profile("h100"), shipped()
    for family in ("megatron", "fsdp"):
        profile = fit.profile(base, family, "2025")
        assert profile.fragmentation == pytest.approx(fit.fragmentation.share(family), abs=1e-4)
        assert profile.sources["fragmentation"].startswith("fitted: ")
    assert with_fragmentation(base, Fragmentation(), "megatron") is base


def test_the_shipped_fit_is_that_of_the_published_rows() -> None:
    cases, _ = load_cases(PUBLISHED)
    again = fit_fragmentation(held(case for case in cases if case.groups.quality != "C"))
    assert memory_document(again) == memory_document(shipped().fragmentation)


def test_what_a_measurement_counts() -> None:
    """Live tensors; these and what the allocator keeps; and communicators and context on top."""
    memory = Memory([{"weights": 10.0, "communicators": 3.0}, {"weights": 8.0}], 2.0, 0.1)
    for kind, expected in (("allocated", 10.0), ("reserved", 11.0), ("device", 16.0)):
        told = Measured(None, "", 17.0, kind)
        assert memory.like(told) == pytest.approx(expected)
    last = Measured(None, "", 17.0, "device", "last")
    assert memory.like(last) == pytest.approx(8.8 + 2.0)
    assert memory.reserved_over_tensors(last) == pytest.approx((17.0 - 2.0) / 8.0)
    assert memory.needed == 13.0
    assert Memory(memory.by_stage, 2.0, 0.1, built_bytes=40.0).needed == 40.0
