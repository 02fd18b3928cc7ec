"""Tests of constraints share the small facts and plain loops of the search's tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "solver"))
