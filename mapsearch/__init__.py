"""mapsearch: exact search over the parallel mappings of huge mixture-of-experts training."""

from __future__ import annotations

__version__ = "0.1.0"
