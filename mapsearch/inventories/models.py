"""Finding a model: a mapsearch file, another project's file, or a name in the catalogue.

Contents: load_model, model_names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mapsearch.errors import InputError, listed
from mapsearch.inventories.base import catalogue_names, resolve, validate
from mapsearch.inventories.importers import IMPORTERS
from mapsearch.inventories.model import Model

_OWN = ("layers", "hidden", "heads", "kv_heads", "head_dim")


def model_names() -> list[str]:
    """Names of the built-in models, sorted."""
    return catalogue_names("mapsearch.inventories", "models")


def load_model(name: str, completed: Mapping[str, Any] | None = None) -> Model:
    """A model by path or catalogue name; the format of a file is found by its content.

    `completed` gives keys, named as the file names them, that lie over the file's own. Raises InputError.
    """
    document, shown = resolve(name, "mapsearch.inventories", "model", "models")
    if isinstance(document, dict) and sum(key in document for key in _OWN) >= 2:
        return validate(Model, {**document, **(completed or {})}, file=shown)
    for importer in IMPORTERS:
        if importer.detect(document):
            model: Model = importer.read(document, file=shown, completed=completed)
            return model
    if not isinstance(document, dict):
        return validate(Model, document, file=shown)
    keys = listed(str(key) for key in list(document)[:6]) or "no keys"
    raise InputError(
        f"is no model: it holds {keys}; looked for a mapsearch model ({', '.join(_OWN)}), a Hugging Face "
        f"configuration ({', '.join(IMPORTERS[0].LOOKED_FOR)}) and an OLMo training file "
        f"({', '.join(IMPORTERS[1].LOOKED_FOR)})",
        file=shown,
    )
