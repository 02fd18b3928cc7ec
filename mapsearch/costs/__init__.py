"""Quantities: what a mapping costs in parameters, bytes, FLOP and seconds.

Contents: ALL (every quantity, in the order of the modules).
"""

from __future__ import annotations
