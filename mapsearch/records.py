"""What inventories and topologies share: strict fields, sources beside numbers, messages that name file and field.

Contents: Record, Inventory, validate, first_problem, catalogue_names, resolve.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from mapsearch import documents
from mapsearch.errors import InputError, UnknownName, listed, near_miss

T = TypeVar("T", bound="Inventory")


class Record(BaseModel):
    """A strict, frozen part of a document read from YAML.

    Any field may be written as `{value: ..., source: measured|datasheet|assumed|fitted, note: ...}`; the
    value is read as usual and its source is kept in `sources` under the field's name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    sources: dict[str, str] = Field(default_factory=dict)
    """Where each number came from, by field name: measured, datasheet, assumed, fitted, or a citation."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The usual schema, in which every field may also be written with its source."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        for name, plain in schema.get("properties", {}).items():
            if name != "sources":
                schema["properties"][name] = _with_source(plain)
        return schema

    @model_validator(mode="before")
    @classmethod
    def _lift_sources(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        lifted: dict[str, Any] = {}
        given = data.get("sources") or {}
        if not isinstance(given, dict):
            raise ValueError(f"sources holds {_kind_of(given)}; write it as field: where its number came from")
        sources = dict(given)
        for key, value in data.items():
            if isinstance(value, dict) and "value" in value and set(value) <= {"value", "source", "note"}:
                lifted[key] = value["value"]
                sources[key] = ": ".join(str(value[k]) for k in ("source", "note") if k in value) or "not said"
            else:
                lifted[key] = value
        if sources:
            lifted["sources"] = sources
        return lifted

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """`true` is not 1: YAML's yes and on are slips where a number is expected."""
        annotation = str(cls.model_fields[str(info.field_name)].annotation)
        words = value if isinstance(value, list) else [value]
        if any(isinstance(word, bool) for word in words) and "bool" not in annotation and "Any" not in annotation:
            raise ValueError(f"holds {value!r} (yes, no, on, off, true or false), which is not a value of it")
        return value


def _with_source(plain: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field as it stands, or as `{value: ..., source: ..., note: ...}`."""
    about: dict[str, Any] = {key: plain[key] for key in ("title", "description", "default") if key in plain}
    bare: dict[str, Any] = {key: value for key, value in plain.items() if key not in about}
    words = {key: {"type": "string"} for key in ("source", "note")}
    tagged = {
        "type": "object",
        "properties": {"value": bare, **words},
        "required": ["value"],
        "additionalProperties": False,
    }
    return {**about, "anyOf": [bare, tagged]}


class Inventory(Record):
    """A whole document, or a part of one that is validated alone: a record that knows what it is called."""

    kind: ClassVar[str] = "document"

    def replaced(self, **changes: Any) -> Self:
        """A validated copy with some fields changed. Raises InputError."""
        return validate(type(self), {**self.model_dump(), **changes}, file=f"{self.kind} (changed)")


def validate(cls: type[T], data: Any, *, file: str) -> T:
    """Build an inventory from plain data. Raises InputError: the first problem, with its field path."""
    if not isinstance(data, dict):
        raise InputError(f"holds {_kind_of(data)} where a {cls.kind} (keys and values) is expected", file=file)
    try:
        return cls.model_validate(data)
    except ValidationError as problem:
        raise first_problem(cls, problem, file) from None


def _kind_of(data: Any) -> str:
    return {list: "a list", str: "text", type(None): "nothing"}.get(type(data), f"a {type(data).__name__}")


def first_problem(cls: type[BaseModel], problem: ValidationError, file: str) -> InputError:
    """The first thing pydantic found wrong, as one sentence that names file and field."""
    errors = problem.errors(include_url=False)
    # A misspelt key also leaves the right one missing: the misspelling is the thing to mend.
    error = next((error for error in errors if error["type"] == "extra_forbidden"), errors[0])
    path = [part for part in error["loc"] if not str(part).startswith("function-")]
    field = ".".join(str(part) for part in path)
    if error["type"] == "extra_forbidden":
        known = _fields_at(cls, path[:-1])
        return InputError(
            f"unknown key{near_miss(str(path[-1]), known)}; known keys: {listed(sorted(known))}",
            file=file,
            field=field,
        )
    if error["type"] == "missing":
        return InputError("is missing; it has no default", file=file, field=field)
    message = str(error["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    given = (
        ""
        if repr(error["input"])[:60] in message or error["type"] == "value_error"
        else (f" (given: {str(error['input'])[:60]})")
    )
    return InputError(f"{message[:1].lower()}{message[1:]}{given}", file=file, field=field)


def _fields_at(cls: type[BaseModel], path: list[Any]) -> list[str]:
    """Names of the fields of the record at `path`, looking through lists, dicts and optional types."""
    here: Any = cls
    for part in path:
        fields = getattr(here, "model_fields", {})
        if part in fields:
            here = _record_in(fields[part].annotation)
    return [name for name in getattr(here, "model_fields", {}) if name != "sources"]


def _record_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _record_in(argument)
        if found is not None:
            return found
    return None


def catalogue_names(package: str, folder_name: str = "") -> list[str]:
    """Names of the documents in a built-in catalogue, sorted."""
    folder = resources.files(package) / "catalogue" / folder_name
    return sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))


def resolve(name: str, package: str, kind: str, folder_name: str = "") -> tuple[Any, str]:
    """A document by path, else by name in a folder of the package's catalogue: its data and the name to show.

    Raises UnknownName: no such file and no such name, with the nearest name and the list of names.
    """
    path = Path(name)
    stem = path.name.removesuffix(".yaml")
    names = catalogue_names(package, folder_name)
    if documents.is_file(path) or len(path.parts) > 1:
        return documents.load(path), name
    if stem in names:
        text = (resources.files(package) / "catalogue" / folder_name / f"{stem}.yaml").read_text(encoding="utf-8")
        return documents.parse(text, file=f"{stem} (built in)"), f"{stem} (built in)"
    if documents.exists(path):
        return documents.load(path), name
    raise UnknownName(
        f"no such file, and no built-in {kind} of that name{near_miss(stem, names)}; built in: {listed(names)}",
        file=name,
    )
