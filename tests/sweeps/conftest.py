"""A folder in which sweeps are written and run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_sweeps import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)
