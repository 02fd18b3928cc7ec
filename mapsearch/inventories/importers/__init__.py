"""Readers of other projects' model files, one per format.

Contents: IMPORTERS.

A reader has `detect(document)`, `read(document, file=..., completed=...)` and `LOOKED_FOR`, the keys by which it
knows its format. To add one: write the module and name it here.
"""

from __future__ import annotations

from mapsearch.inventories.importers import huggingface, olmo

IMPORTERS = (huggingface, olmo)
