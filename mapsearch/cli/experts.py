"""`mapsearch experts`: router load by expert and rank, what it means for a run file, and experts placed on ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from mapsearch.cli import options
from mapsearch.cli.render import emit, write_text
from mapsearch.cli.solved import inputs_for, notes_of, read_mapping, run_of, tell_differing
from mapsearch.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from mapsearch.costs.estimate import Point
    from mapsearch.experts.histogram import Histogram
    from mapsearch.inventories.model import Model

FORMATS = ("table", "json", "csv", "md", "html", "svg", "routing")


@click.command("experts", short_help="Router load by expert and rank, and experts placed on ranks.")
@click.argument("loads", metavar="[LOADS.csv|.json|.npz]", required=False)
@click.option("--zipf", type=float, metavar="EXPONENT", help="Synthetic loads: rank ** -EXPONENT in each layer.")
@click.option("--dirichlet", type=float, metavar="SKEW", help="Synthetic: Dirichlet with this largest over mean.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of synthetic loads.")
@click.option(
    "--layers", type=click.IntRange(1, 10_000), metavar="N", help="Of synthetic loads.  [default: the model's]"
)
@click.option(
    "--experts", type=click.IntRange(2, 2**20), metavar="N", help="Of synthetic loads.  [default: the model's]"
)
@click.option("--top-k", type=click.IntRange(1, 2**20), metavar="K", help="Experts per token.  [default: the model's]")
@click.option("--tokens", type=click.IntRange(1, 2**40), metavar="N", help="Routed.  [default: the run's length]")
@click.option("--answer", metavar="ANSWER.json[#RANK]|MAPPING.yaml", help="Estimate this mapping under each skew.")
@click.option("--ranks", type=click.IntRange(2, 2**20), metavar="N", help="Expert ranks.  [default: EP of --answer]")
@click.option(
    "--per-node", type=click.IntRange(1), metavar="N", help="Ranks of a node.  [default: as EP of --answer stands]"
)
@click.option(
    "--groups", type=click.IntRange(1), default=1, metavar="N", help="Groups of experts that stay inside a node each."
)
@click.option("--copies", type=click.IntRange(0), default=0, metavar="N", help="Redundant copies in each layer.")
@click.option(
    "--drop-limit", type=click.FloatRange(0, 1), default=0.0, metavar="SHARE", help="That capacity_factor may drop."
)
@click.option(
    "--backend",
    type=click.Choice(["auto", "cpsat", "milp", "none"]),
    default="auto",
    show_default=True,
    help="Solver for layers with a gap; none: rules and bounds only.",
)
@click.option(
    "--gap", type=click.FloatRange(0), default=5e-3, show_default=True, help="Leave layers this near their bound."
)
@click.option("--effort", type=options.Duration(), default=10.0, show_default=True, help="Of the solver, all layers.")
@click.option("--placed", is_flag=True, help="In the routing record: with experts as placed, not as they stand.")
@options.input_options
@click.option(
    "--format",
    "-f",
    "format_",
    type=click.Choice(FORMATS),
    help="How to write the result; svg: charts; routing: the run file's record.  [default: by --output, else table]",
)
@options.output_file("Write to FILE instead of the screen; FILE.yaml: the routing record of a run file.")
@click.option("--quiet", "-q", is_flag=True, help="No notes.")
@click.option("--verbose", "-v", is_flag=True, help="Every layer.")
def command(
    *,
    loads: str | None,
    answer: str | None,
    ranks: int | None,
    per_node: int | None,
    placed: bool,
    format_: str | None,
    output: str | None,
    quiet: bool,
    verbose: bool,
    **others: Any,
) -> int:
    """Router load: how uneven it is by expert and by rank, what that means for a run, and where experts should stand.

    Of a histogram (a line or column per expert in CSV, arrays in JSON or npz, by step, layer, source and expert), or of
    synthetic loads. Experts of every layer are placed on ranks so that the worst rank is lightest, then so that least
    leaves a node: by the greedy rule, by exchanges, and by CP-SAT or a MILP where a gap to the bound is left.

    -o routing.yaml writes capacity_factor, rank_skew and pair_skew for the run file; --answer estimates a mapping again
    with the skew before and after.
    """
    options.check_output(output)
    from mapsearch.experts.api import Wanted, experts
    from mapsearch.experts.values import routing_text

    asked = _Asked(loads, answer, others)
    point = None if answer is None else _point(asked)
    histogram = _histogram(asked, point)
    ranks = _ranks(ranks, point)
    wanted = Wanted(
        ranks=ranks,
        nodes=_nodes(ranks, per_node, point),
        capacity_factor=None if point is None else point.facts.run.routing.capacity_factor,
        **{name: others[name] for name in ("groups", "copies", "drop_limit", "backend", "gap", "effort")},
    )
    found = experts(histogram, wanted, point, answer or "")
    shape = format_ or {"yaml": "routing"}.get(named := options.output_format(None, output), named)
    if shape == "routing":
        write_text(routing_text(found, placed=placed), output)
    elif shape in ("html", "svg"):
        from mapsearch.reports.expert_loads import expert_load_page, expert_load_svg

        write_text(expert_load_page(found, footer=not quiet) if shape == "html" else expert_load_svg(found), output)
    else:
        emit(found, format_=shape, output=output, verbose=verbose, quiet=quiet)
    return ExitCode.FOUND


@dataclass(frozen=True)
class _Asked:
    """Loads and mapping as they were named, with the other options."""

    loads: str | None
    answer: str | None
    others: dict[str, Any]


def _point(asked: _Asked) -> Point:
    """The mapping with its inputs. Raises InputError."""
    from mapsearch.costs.estimate import layout_trouble, point_of
    from mapsearch.errors import InputError
    from mapsearch.inputs import read_for, read_inputs
    from mapsearch.solver.provenance import provenance_of

    name, told = asked.answer or "", asked.others
    mapping, about = read_mapping(name)
    given = {key: told[key] for key in ("model", "run", "topology", "profile")}
    inputs = read_inputs(**inputs_for(about, **given, devices=None, run_options=told))
    tell_differing(about, provenance_of(inputs.named, inputs.devices))
    point = point_of(mapping, read_for(inputs, mapping, notes_of(name)).facts)
    if point.facts.model.moe is None:
        raise InputError(f"is a mapping of {point.facts.model.name}, which has no experts", file=name)
    trouble = layout_trouble(point)
    if trouble:
        raise InputError(f"cannot be estimated: {trouble}", file=name)
    return point


def _histogram(asked: _Asked, point: Point | None) -> Histogram:
    """The loads of the file, or synthetic ones. Raises UsageError, InputError."""
    told = asked.others
    ways = [name for name in ("zipf", "dirichlet") if told[name] is not None]
    if len(ways) + (asked.loads is not None) != 1:
        raise UsageError(
            "name one source of loads: a file LOADS.csv, .json or .npz, or --zipf EXPONENT, or --dirichlet SKEW",
            field="LOADS",
        )
    if asked.loads is not None:
        from mapsearch.experts.files import read_histogram

        histogram = read_histogram(asked.loads)
    else:
        histogram = _synthetic(ways[0], told, point)
    if point is not None and point.facts.model.moe is not None and point.facts.model.moe.experts != histogram.experts:
        raise UsageError(
            f"{histogram.name} has {histogram.experts:,} experts, and {point.facts.model.name} has "
            f"{point.facts.model.moe.experts:,}",
            field="LOADS",
        )
    return histogram


def _synthetic(way: str, told: dict[str, Any], point: Point | None) -> Histogram:
    """Loads of a shape that options give, or else the model and the run. Raises UsageError."""
    from mapsearch.experts.synthetic import dirichlet, zipf

    model = _model(told) if point is None else point.facts.model
    moe = model.moe
    if moe is None:
        raise UsageError(f"{model.name} has no experts; name another model", field="--model")
    tokens = told["tokens"]
    if tokens is None:
        run = run_of(None, told["run"], told) if point is None else point.facts.run
        tokens = run.sequence_length
    experts, top_k = told["experts"] or moe.experts, told["top_k"] or moe.top_k
    if top_k > experts:
        raise UsageError(f"{top_k} experts per token are more than the {experts} there are", field="--top-k")
    make = zipf if way == "zipf" else dirichlet
    layers = told["layers"] or model.moe_layers
    return make(told[way], layers=layers, experts=experts, tokens=tokens, top_k=top_k, seed=told["seed"])


def _model(told: dict[str, Any]) -> Model:
    from mapsearch.inventories.models import load_model

    return load_model(told["model"] or options.DEFAULT_MODEL)


def _ranks(ranks: int | None, point: Point | None) -> int:
    """Expert ranks: as asked, else the mapping's EP. Raises UsageError."""
    if point is None:
        if ranks is None:
            raise UsageError("say over how many ranks the experts are spread, or give a mapping", field="--ranks")
        return ranks
    ep = point.mapping.ep
    if ranks is not None and ranks != ep:
        raise UsageError(f"{ranks:,} ranks are not the mapping's EP {ep:,}; drop one of them", field="--ranks")
    if ep < 2:
        raise UsageError("the mapping has EP 1: every rank holds all experts, and none is worse", field="--answer")
    return ep


def _nodes(ranks: int, per_node: int | None, point: Point | None) -> int:
    """Nodes that the ranks fill: innermost units of the mapping's placement where it is not said. Raises UsageError."""
    if per_node is None:
        return 1 if point is None else ranks // int(point.rows["ep"][0])
    if ranks % per_node:
        raise UsageError(f"{per_node:,} ranks of a node do not divide the {ranks:,} ranks", field="--per-node")
    return ranks // per_node
