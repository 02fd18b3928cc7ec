"""Generations of software: the year and the release that a row was measured with.

Contents: EPOCHS, epoch_of, release_of.
"""

from __future__ import annotations

import re

from mapsearch.calibration.rows import Case

EPOCHS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("2021", ("sc21",)),
    ("2022", ("bigscience", "korthikanti")),
    ("2023", ("llm_foundry", "megascale_2402", "zero_bubble", "23.")),
    (
        "2024",
        (
            "24.",
            "internevo",
            "fms_",
            "moe_parallel_folding",
            "r0.8",
            "torchtitan",
            "llama3_herd",
            "ascend",
            "vocabulary",
            "maxtext_tpu_v5",
            "model_reports",
        ),
    ),
    ("2025", ("25.0", "r0.1", "r0.2", "modelzoo", "simumax", "megascale_moe", "kempner", "nemo_automodel", "tpu_v5p")),
)
"""Years of software by words of the source or release; what matches none is of 2026."""


def epoch_of(case: Case) -> str:
    """The year whose kernels and libraries a row used."""
    words = f"{case.groups.source} {case.groups.framework}".lower()
    return next((year for year, signs in EPOCHS if any(sign in words for sign in signs)), "2026")


def release_of(case: Case) -> str:
    """The framework and its release as a row names them, and the year: `megatron-bridge-v0.5.0-2026`.

    The same name of another year is another release: few sources say which commit they ran.
    """
    words = re.sub(r"[^a-z0-9.]+", "-", case.groups.framework.lower()).strip("-.")
    return f"{words or case.groups.family}-{epoch_of(case)}"
