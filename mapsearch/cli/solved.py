"""A mapping on the command line, and what it was solved for: an answer names its inputs, options win over them.

Contents: TWO_POOLS, read_mapping, schema_of, two_pools, ranked_name, notes_of, names_of, run_of, run_options_of,
changed, inputs_for, differing, tell_differing, read_result.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

from mapsearch.cli import options
from mapsearch.errors import InputError, UsageError, listed

if TYPE_CHECKING:
    from pydantic import BaseModel

    from mapsearch.answer import Provenance
    from mapsearch.inventories.mapping import Mapping
    from mapsearch.inventories.run import Run
    from mapsearch.pooled import TwoPools

    R = TypeVar("R", bound=BaseModel)

_ANSWER = "mapsearch.answer/"
TWO_POOLS = "mapsearch.rollout/1"


def ranked_name(name: str, rank: int | None) -> str:
    """`answer.json` and a rank as `answer.json#2`. Raises UsageError when both name one."""
    if rank is not None and "#" in name:
        raise UsageError(f"the mapping is named twice: {name} and --rank {rank}; drop one", field="--rank")
    return name if rank is None else f"{name}#{rank}"


def inputs_for(
    about: Provenance | None,
    *,
    model: str | None,
    run: str | None,
    topology: str | None,
    profile: str | None,
    devices: int | None,
    run_options: dict[str, Any],
) -> dict[str, Any]:
    """The inputs that a question about a mapping takes: as given, else as its answer names them, else the defaults.

    A topology that is given stands by itself: the answer's profile and number of devices belong to its own.
    """
    named, other = names_of(about), topology is not None
    return {
        "model": model or named.get("model") or options.DEFAULT_MODEL,
        "run": run_of(about, run, run_options),
        "topology": topology or named.get("topology") or options.DEFAULT_TOPOLOGY,
        "profile": profile or (None if other else named.get("profile")),
        "devices": devices or (about.devices if about and not other else None),
    }


def tell_differing(about: Provenance | None, now: Provenance | None, *, quiet: bool = False) -> None:
    """Say on stderr which inputs are not those that an answer was solved for."""
    other = differing(about, now)
    if other and not quiet:
        print(f"mapsearch: note: not the same {listed(other)} as the answer was solved for", file=sys.stderr)


def read_result(kind: type[R], name: str, schema: str, command: str) -> R:
    """A typed result from its JSON; `command` is what writes it. Raises InputError."""
    from pydantic import ValidationError

    from mapsearch import documents
    from mapsearch.records import first_problem

    data = documents.load(name)
    if not (isinstance(data, dict) and data.get("schema") == schema):
        raise InputError(f"is no {schema}; write it with mapsearch {command} --format json", file=name)
    try:
        return kind.model_validate(data)
    except ValidationError as problem:
        raise first_problem(kind, problem, name) from None


def run_of(about: Provenance | None, run: str | None, run_options: dict[str, Any]) -> Run:
    """The run that is asked for, else the answer's with its options; options given here win. Raises InputError."""
    told = run_options_of(about, run, run_options)
    return options.chosen_run(run or names_of(about).get("run") or options.DEFAULT_RUN, told)


def run_options_of(about: Provenance | None, run: str | None, run_options: dict[str, Any]) -> dict[str, Any]:
    """The options that change a run: those given here and, where it is the answer's run, those it was solved with.

    Of values that exclude each other those given here win; constraints add up.
    """
    before = about.overrides if about and run is None else {}
    values = {name: changed(name, run_options[name], before) for name in options.OVERRIDES}
    several = (*options.CONSTRAINTS, "price")
    return {**values, **{name: [*before.get(name, []), *run_options.get(name, ())] for name in several}}


def changed(option: str, now: Any, before: dict[str, list[str]]) -> Any:
    """What an option says here, else what it said when the answer was solved, else None."""
    return now if now is not None else next(iter(before.get(option, [])), None)


def notes_of(name: str) -> list[str] | None:
    """The notes of an answer, `answer.json` or `answer.json#2`, which tell how its cluster was read; else None."""
    from mapsearch import documents

    data = documents.load(name.rpartition("#")[0] if "#" in name else name)
    if _schema(data) == TWO_POOLS:
        data = data.get("training")
    return list(data["notes"]) if _schema(data).startswith(_ANSWER) else None


def names_of(about: Provenance | None) -> dict[str, str]:
    """The inputs an answer names, without the remark that they are built in."""
    if about is None:
        return {}
    names = {"model": about.model, "run": about.run, "topology": about.topology, "profile": about.profile}
    return {kind: shown.removesuffix(" (built in)") for kind, shown in names.items()}


def differing(before: Provenance | None, now: Provenance | None) -> list[str]:
    """Inputs whose content is not what the answer was solved for: files that changed, or options given to `solve`."""
    if before is None or now is None:
        return []
    return [kind for kind, digest in before.input_sha256.items() if now.input_sha256.get(kind, digest) != digest]


def _schema(data: Any) -> str:
    """The schema that a document says; empty where it says none."""
    return str(data.get("schema", "")) if isinstance(data, dict) else ""


def schema_of(name: str) -> str:
    """The schema that a file says, `#RANK` apart; empty where it says none. Raises InputError."""
    from mapsearch import documents

    return _schema(documents.load(name.rpartition("#")[0] or name))


def two_pools(name: str) -> TwoPools:
    """An answer about two pools. Raises InputError, also for a rank beyond its one mapping."""
    from mapsearch.pooling.contracts import read_answer

    path, mark, rank = name.rpartition("#") if "#" in name else (name, "", "")
    if mark and rank != "1":
        raise InputError(f"is about two pools and holds one training mapping, so there is no rank {rank}", file=path)
    return read_answer(path)


def _of_pools(name: str) -> tuple[Mapping, Provenance]:
    """The training mapping of an answer about two pools, and what its side was solved for. Raises InputError."""
    from mapsearch.api import mapping_given

    found = two_pools(name)
    if found.mapping is None or found.training is None:
        raise InputError(f"holds no pair of mappings (status {found.status}); explain says why", file=name)
    return mapping_given(found.mapping), found.training.provenance


def read_mapping(name: str) -> tuple[Mapping, Provenance | None]:
    """The mapping of a file, and where it came from when the file is an answer. Raises InputError."""
    from mapsearch import documents
    from mapsearch.inventories.base import validate
    from mapsearch.inventories.mapping import Mapping

    path, mark, rank = name.rpartition("#") if "#" in name else (name, "", "")
    data = documents.load(path)
    if _schema(data) == TWO_POOLS:
        return _of_pools(name)
    if not (isinstance(data, dict) and str(data.get("schema", "")).startswith(_ANSWER)):
        if mark:
            raise InputError("is not an answer of `mapsearch solve`, so #RANK picks nothing from it", file=path)
        return validate(Mapping, data, file=path), None
    from pydantic import ValidationError

    from mapsearch.answer import Answer
    from mapsearch.records import first_problem

    try:
        answer = Answer.model_validate(data)
    except ValidationError as problem:
        raise first_problem(Answer, problem, path) from None
    if rank and not rank.isdigit():
        raise InputError(f"the rank after # is a whole number, not {rank!r}", file=path)
    found = {one.rank: one for one in answer.mappings}.get(int(rank or 1))
    if found is None:
        held = f"it holds {len(answer.mappings)}" if answer.mappings else f"it holds none (status {answer.status})"
        raise InputError(f"has no mapping of rank {rank or 1}; {held}", file=path)
    stages = {"layout": found.layout, "recompute_stages": found.recompute_stages}
    plain = {**found.sizes, **found.choices, "placement": found.placement, **stages}
    return validate(Mapping, plain, file=path), answer.provenance
