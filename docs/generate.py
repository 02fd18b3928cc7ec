"""Write the reference pages that follow from the code: `python docs/generate.py`.

cli.md from the help of every command; a page for each kind of input file from the fields of its records.
"""

from __future__ import annotations

import importlib
import re
import types
import typing
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from mapsearch import axes
from mapsearch.cli.main import COMMANDS, cli
from mapsearch.inventories.run import Run
from mapsearch.topologies.composing.wishes import rate_text, time_text
from mapsearch.topologies.importers.parts import load_parts

REFERENCE = Path(__file__).parent / "reference"
SOURCED = (
    "Any field may be written as `{value: ..., source: measured|datasheet|assumed|fitted, note: ...}`; the source is "
    "kept and reported. Unknown keys are refused with the nearest known one."
)
CLI = """# The command line

Results go to stdout, progress and remarks to stderr; [exit codes](exit-codes.md) are the same for all commands. An
input is the name of a built-in document or a file: `asic` and `asic.yaml` both name the built-in cluster when there is
no such file. A pipe and `NO_COLOR` switch colour off; `COLUMNS` sets the width of tables (120 in a pipe).

`mapsearch --version` prints the version; `python -m mapsearch` is the same program.
"""
RUN_EXAMPLE = """```yaml
name: my-run
sequence_length: 131072
global_batch: 1024
precision: bf16
reserve: {value: 0.15, source: assumed}
schedule: [1f1b, interleaved]
recompute: [none, norm+activation, full]
constraints:
  fix: {tp: 8}
```"""
MAPPING_EXAMPLE = """```yaml
tp: 8
cp: 16
dp: 2
pp: 16
ep: 128
edp: 2
schedule: interleaved
vpp: 5
recompute: full
dispatcher: fixed-all-to-all
placement:
  tp: {board: 8}
  ep: {board: 8, rack: 8, pod: 2}
```"""
CASE_EXAMPLE = """```yaml
source: https://github.com/NVIDIA/Megatron-LM/issues/2762
model: {name: Qwen3-30B-A3B}
hardware: {gpu: H100, gpus: 8, gpus_per_node: 8}
mapping: {tp: 1, pp: 1, ep: 8}
run: {micro_batch: 1, distributed_optimizer: true}
```"""
SWEEP_EXAMPLE = """```yaml
name: which-cluster
base: {run: long-context-128k, time_limit: 120}
grid:
  model: [moe-5t, deepseek-v3]
  topology.device.hbm: [96 GB, 128 GB]
zip:
  - {topology: [asic, hgx-h100], profile: [asic, h100]}
items:
  - {model: kimi-k2, topology: gb200-nvl72, fix.pp: 8}
exclude:
  - {model: moe-5t, topology: hgx-h100}
```"""
LOOP_EXAMPLE = """```yaml
name: first-plan
training: {batch_tokens: 4194304, step: 30 s}
rollout:
  tokens_per_s: {value: 100000, source: "measured: first week"}
  concurrency: 256
  lengths: {quantiles: {0: 256, 0.5: 4096, 0.9: 12288, 1: 32768}}
  kept_share: 0.9
publish: {time: 12 s, pause: 2 s, switch: finish}
queue: {most: 8388608}
budget: {versions: 2}
policy: down-weight
decay: 0.5
```"""
MEASUREMENT_EXAMPLE = """```yaml
name: first-week
mapping: TP4 CP8 DP128 PP1 | ETP1 EP16 EDP256
quantities:
  step.time_s: {value: [131.2, 130.8, 130.9], unit: s, source: "measured: steps 100 to 102"}
  step.ep_s: {value: 18.4, unit: s, source: "measured: trace of rank 0, step 101"}
  ep.library.whole_group: {value: yes, unit: word, source: "measured: acceptance test"}
```"""
ROLLOUT_EXAMPLE = """```yaml
name: reasoning
prompt_tokens: {quantiles: {0: 64, 0.5: 512, 1: 8192}}
response_tokens: {histogram: {512: 10, 2048: 50, 8192: 30, 16384: 10}}
concurrency: 65536
filter_yield: {value: 0.8, source: "measured: kept samples of last week"}
versions: 8
queue: {held_batches: 0.5, most_batches: 2}
serving: {tp: [4, 8], dp: [16, 32], ep: [64, 128], weights: fp8-block, gemm_format: fp8}
publishing: {path: all, switch: 2 s, every: 4, in_flight: drain}
```"""
SETTINGS = """A setting is one of:

| setting | takes | default |
|---|---|---|
| `model`, `run`, `topology` | a built-in name or a file, looked for beside the sweep file first | as for `solve` |
| `profile` | the same | the built-in profile of the device |
| `devices` | a cluster of this kind with so many devices | as the topology has |
| `top` | how many mappings to keep | 1 |
| `backend`, `proof` | as for `solve` | `auto` |
| `certify` | `true`: CP-SAT and the MILP each prove the ranking by themselves, as `solve --certify` | `false` |
| `time_limit` | seconds for one item | none |
| `run.FIELD`, `model.FIELD`, `topology.FIELD`, `profile.FIELD` | a field of that document, at any depth: `run.routing.capacity_factor`, `topology.levels.rack.bandwidth` | as the document says |
| `fix.AXIS`, `allow.AXIS`, `at_most.AXIS`, `at_least.AXIS`, `inside.LEVEL` | a [constraint](run.md#userconstraints) beside those of the run | none |

A setting of an item wins over the grid's or the lists', and that over the base's."""
PAGES = {
    "run": (
        "mapsearch.inventories.run",
        "Run",
        "What is trained, what is limited, and what the search may choose from: `mapsearch solve --run FILE`.",
        RUN_EXAMPLE,
    ),
    "model": (
        "mapsearch.inventories.model",
        "Model",
        "The shape of one transformer: `mapsearch solve --model FILE`. A Hugging Face `config.json` is read as well.",
        "",
    ),
    "sweep": (
        "mapsearch.sweeps.spec",
        "Sweep",
        "Many searches: what `mapsearch sweep FILE` runs ([how to](../how-to/sweep.md)).",
        f"{SWEEP_EXAMPLE}\n\n{SETTINGS}",
    ),
    "mapping": (
        "mapsearch.inventories.mapping",
        "Mapping",
        "One value for every axis, and where each axis lives: what `mapsearch check FILE` reads. Sizes that are left "
        "out are 1; tp*cp*dp and etp*ep*edp must be equal, since both grids cover the same devices.",
        MAPPING_EXAMPLE,
    ),
    "case": (
        "mapsearch.inventories.case",
        "Case",
        "What somebody ran, on what and how, as far as it is known: what `mapsearch check CASE.yaml` judges ([how to]"
        "(../how-to/judge-a-case.md)). Every fact may be missing; in its records, keys that are not known are listed "
        "and not read, and one that looks like a slip of a known key is refused.",
        CASE_EXAMPLE,
    ),
    "measurement": (
        "mapsearch.inventories.measurement",
        "Measurement",
        "What was measured of a mapping: what `mapsearch contract MAPPING --measured FILE` reads, and `--template` "
        "writes ([how to](../how-to/contract.md)).",
        MEASUREMENT_EXAMPLE,
    ),
    "loop": (
        "mapsearch.inventories.loop",
        "Loop",
        "Asynchronous training beside rollout: what `mapsearch loop FILE` reads ([how to](../how-to/loop.md)).",
        LOOP_EXAMPLE,
    ),
    "rollout": (
        "mapsearch.inventories.rollout",
        "Rollout",
        "What is generated, how it is served and how weights get there: `mapsearch rollout --rollout FILE` ([how to]"
        "(../how-to/rollout.md)).",
        ROLLOUT_EXAMPLE,
    ),
    "manifest": (
        "mapsearch.inventories.manifest",
        "Manifest",
        "What a replica must know before it serves a version: what `mapsearch rollout manifest` writes and checks. It is "
        "refused where one request could see two versions: shards that are missing or listed twice, that hold another "
        "version or activate at another moment, a checksum or a scaling recipe that does not match, no older parent.",
        "",
    ),
    "profile": (
        "mapsearch.inventories.profile",
        "Profile",
        "What a device and its software reach of their datasheet peaks: `mapsearch solve --profile FILE`.",
        "",
    ),
    "topology": (
        "mapsearch.topologies.spec",
        "Topology",
        "A cluster as built: `mapsearch solve --topology FILE`, as levels (tiers, innermost first) or as an explicit "
        "graph of nodes and links. Bandwidths are per device and one way unless `direction: both` stands beside them. "
        "Both forms by example, and how levels are derived: [From cables to levels](../explanation/topology.md).",
        "",
    ),
}
SHARED = "mapsearch.inventories.lengths"
"""Its records are told on the page of every record that has them."""
PLAIN = {"int": "whole number", "float": "number", "str": "text", "bool": "true or false", "Any": "value"}


PARTS = """# Known parts

What [importing a cluster](../how-to/import-a-cluster.md) fills in where a file does not say it; one way. Memory and peaks are those of the built-in clusters, or stand in `mapsearch/topologies/importers/parts.yaml` with their sources, as all of this does.
"""
CPUS = "By vendor, family and model as NCCL's files write them, else by the devices' slots; the first line that fits counts."


def main() -> None:
    """Write all pages."""
    sections = [CLI]
    root = click.Context(cli, info_name="mapsearch")
    for name in COMMANDS:
        command = cli.get_command(root, name)
        if command is not None:
            sections += command_sections(command, f"mapsearch {name}", root)
    (REFERENCE / "cli.md").write_text("\n".join(sections), encoding="utf-8")
    (REFERENCE / "parts.md").write_text(parts_page(), encoding="utf-8")
    for page, parts in PAGES.items():
        (REFERENCE / f"{page}.md").write_text(record_page(page, *parts), encoding="utf-8")


def parts_page() -> str:
    """Known parts with their rates and where each is from."""
    lines = [PARTS, "| part | `--device` | fast links, one each | links | PCIe x16 | NIC for each | on a full board |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    table = load_parts()
    notes = []
    for part in table.devices:
        rates = [(field, part.said(field)) for field in ("nvlink", "xgmi", "hccs", "hccs_switch", "sio")]
        fast = ", ".join(f"{field.replace('_', ' ')} {rate_text(said.value)}" for field, said in rates if said)
        nic = part.said("nic")
        names = ", ".join(f"`{name}`" for name in (part.aliases or [part.name.lower()]))
        lines.append(f"| {part.name} | {names} | {fast} | {part.most_links or ''} | {part.pcie} | "
                     f"{rate_text(nic.value) if nic else ''} | {part.board.replace('_', ' ')} |")  # fmt: skip
        said = "; ".join(f"{field.replace('_', ' ')}: {one.source}" for field, one in [*rates, ("nic", nic)] if one)
        notes.append(f"- {part.name}: {said}")
    slots = [f"- {name}: {rate_text(said.value)} ({said.source})" for name, said in
             ((one, table.slot(one)) for one in ("gen3", "gen4", "gen5", "gen6"))]  # fmt: skip
    cpus = [f"- {one.cpu or 'any other'}: {rate_text(one.rate)} ({one.sources['rate']})" for one in table.smp]
    times = [f"- {name.replace('_', ' ')}: {time_text(getattr(table.latency, name))} ({source})"
             for name, source in table.latency.sources.items()]  # fmt: skip
    parts = ["## Sources", "\n".join(notes), "## PCIe", "\n".join(slots), "## Between CPUs", CPUS, "\n".join(cpus),
             "## Latencies", "\n".join(times)]  # fmt: skip
    return "\n\n".join(["\n".join(lines), *parts]) + "\n"


def command_sections(command: click.Command, name: str, parent: click.Context) -> list[str]:
    """The help of a command and of its subcommands."""
    context = click.Context(
        command,
        info_name=name.rsplit(maxsplit=1)[-1],
        parent=parent,
        terminal_width=100,
        help_option_names=["-h", "--help"],
    )
    mark = "#" * min(name.count(" ") + 1, 3)
    sections = [f"{mark} {name}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"]
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            if found is not None:
                sections += command_sections(found, f"{name} {sub}", context)
    return sections


def record_page(page: str, module: str, record: str, intro: str, example: str) -> str:
    """A page for one record and the records inside it."""
    home = importlib.import_module(module)
    main_record = getattr(home, record)
    own = [item for item in vars(home).values() if isinstance(item, type) and issubclass(item, BaseModel)]
    schema = f"`mapsearch schema {page}` prints the JSON Schema."
    text = [f"# The {page}", f"{intro} {SOURCED} {schema}", *([example] if example else []), field_table(main_record)]
    for item in own:
        if item.__module__ in (module, SHARED) and item is not main_record:
            text += [f"## {item.__name__}", " ".join((item.__doc__ or "").split()), field_table(item)]
    return formula_links("\n\n".join(text) + "\n")


def formula_links(text: str) -> str:
    """`FORMULAS 3.5` as a link to that section of the formula sheet."""
    headings = re.findall(r"^#+ (([0-9.]+) .*)$", (REFERENCE / "formulas.md").read_text(encoding="utf-8"), flags=re.M)
    slugs = {number: re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title, number in headings}
    return re.sub(r"FORMULAS ([0-9]+(?:\.[0-9]+)?)", lambda cited: f"[{cited[0]}](formulas.md#{slugs[cited[1]]})", text)


def field_table(record: type[BaseModel]) -> str:
    """Name, accepted values, default and meaning of each field."""
    lines = ["| field | takes | default | meaning |", "|---|---|---|---|"]
    for name, field in record.model_fields.items():
        if name != "sources":
            accepted = typing.Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
            meaning = " ".join((field.description or "").split()).replace("|", "\\|")
            lines.append(f"| `{name}` | {type_words(accepted)} | {default_words(record, name)} | {meaning} |")
    return "\n".join(lines)


def default_words(record: type[BaseModel], name: str) -> str:
    """The default of a field as a user would write it."""
    field = record.model_fields[name]
    if field.default is PydanticUndefined:
        return "**needed**" if field.default_factory is None else "empty"
    if isinstance(field.default, BaseModel):
        return "its defaults"
    if record is Run and name in axes.CHOICES:
        return f"`{', '.join(str(axes.written(name, code)) for code in field.default)}`"
    return "none" if field.default is None else f"`{field.default}`"


def type_words(annotation: Any) -> str:
    """A type in words."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        schemas = [getattr(part, "json_schema", None) or {} for part in parts[1:]]
        examples = next((schema["examples"] for schema in schemas if schema.get("examples")), None)
        return f"such as {', '.join(f'`{e}`' for e in examples)}" if examples else type_words(parts[0])
    if origin is typing.Literal:
        return " \\| ".join(f"`{part}`" for part in parts)
    if origin in (typing.Union, types.UnionType, list, dict):
        inner = [type_words(part) for part in parts if part is not type(None)]
        joint = {list: "", dict: ": "}.get(origin, " or ")
        text = joint.join(inner)
        return f"list of {text}".replace("list of such as", "list, of") if origin is list else text
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return PLAIN.get(getattr(annotation, "__name__", ""), str(annotation))


if __name__ == "__main__":
    main()
