"""Output of `ibnetdiscover`: switches, adapters and every cable of an InfiniBand fabric, with widths and speeds.

Contents: FORMAT, JOINED_WITH, LANE_BITS_PER_S, detect, read.

A record is an identification (vendid, devid, sysimgguid, switchguid or caguid) and a line per connected port:

    Switch  65 "S-e09d730300d1c2a0"    # "MF0;leaf1:MQM9700/U1" enhanced port 0 lid 3 lmc 0
    [1]     "H-946dae0300a1b2c4"[1](946dae0300a1b2c4)    # "node01 mlx5_0" lid 12 4xNDR
    [33]    "S-e09d730300d1c3b0"[1]    # "MF0;spine1:MQM9700/U1" lid 7 4xNDR

Each cable stands in it twice, once from either end; the ends must agree. Hosts are told by the adapters' descriptions
(`node01 mlx5_0`); the adapters of a host, in the order of their names, are its rails. Several files, one per plane, are
read as one. Routers and the aggregation nodes of switches (SHARP) carry no traffic of devices and are left out.

Source: ibnetdiscover(8), "Topology file format", and infiniband-diags/ibnetdiscover.c of rdma-core.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from mapsearch.topologies.importers.base import MAX_LINKS, MAX_NODES, Between, Link, Repairs, Said, fault
from mapsearch.topologies.importers.evenness import part_notes

FORMAT = "ibnetdiscover"
JOINED_WITH = "\n"
LANE_BITS_PER_S = {
    "SDR": 2e9,
    "DDR": 4e9,
    "QDR": 8e9,
    "FDR10": 10e9,
    "FDR": 14.0625e9 * 64 / 66,
    "EDR": 25e9,
    "HDR": 50e9,
    "NDR": 100e9,
    "XDR": 200e9,
}
"""Data rate of one lane and way, after the line coding. Source: InfiniBand Trade Association, roadmap."""
_SIGN = re.compile(r"^(?:Switch|Ca|Rt)\s+\d+\s+\"[SHR]-[0-9a-fA-F]+\"", re.MULTILINE)
_RECORD = re.compile(r"(Switch|Ca|Rt)\s+(\d{1,6})\s+\"([SHR]-[0-9a-fA-F]{1,16})\"(?:\s*#\s*\"([^\"]*)\")?")
_PORT = re.compile(
    r"\[(\d{1,6})\](?:\[ext \d+\])?(?:\s*\([0-9a-fA-F]+\))?\s*\"([SHR]-[0-9a-fA-F]{1,16})\"\[(\d{1,6})\]"
    r"(?:\[ext \d+\])?(?:\s*\([0-9a-fA-F]+\))?\s*(?:#(.*))?"
)
_RATE = re.compile(r"\b\d{1,2}x[A-Z][A-Z0-9]*\b")
_DESCRIBED = re.compile(r"\"([^\"]*)\"")
_HOST = re.compile(r"(\S+)\s+((?:HCA-|mlx\d_|hfi\d_|qib|bnxt_re|ib|rocep|ibp|ens|eth)\S*)")
_AGGREGATION = re.compile(r"aggregation node", re.IGNORECASE)
_OTHER = re.compile(r"(?:vendid|devid|sysimgguid|switchguid|caguid|rtguid)=|Chassis \d|Non-Chassis Nodes|Hostname:|#")
_NUMBERS = re.compile(r"\d+", re.ASCII)
_Place = tuple[str, int, str]
"""Of a port: name of its adapter for sorting, number, GUID."""


def detect(text: str, name: str) -> bool:
    """A record of a switch or an adapter."""
    return _SIGN.search(text) is not None


def read(text: str, *, file: str, repair: bool = False) -> Between:
    """The fabric of the output. Raises InputError with line and column."""
    repairs = Repairs(file, repair)
    records = _records(text, repairs)
    cables = _cables(records, repairs)
    return _fabric(records, cables, repairs)


@dataclass
class _Port:
    """One connected port of a record."""

    peer: str
    peer_port: int
    rate: str
    line: int


@dataclass
class _Record:
    """A switch, an adapter or a router."""

    guid: str
    kind: str
    port_count: int
    description: str
    line: int
    ports: dict[int, _Port] = field(default_factory=dict)


def _records(text: str, repairs: Repairs) -> dict[str, _Record]:
    records: dict[str, _Record] = {}
    here: _Record | None = None
    for row, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line:
            continue
        if (found := _RECORD.match(line)) is not None:
            guid = found.group(3)
            if guid[0] != found.group(1).replace("Ca", "H")[0]:
                raise fault(f"{found.group(1)} is not what {guid} is called", file=repairs.file, line=row)
            again = records.get(guid)
            here = again or _Record(guid, found.group(1), int(found.group(2)), found.group(4) or "", row)
            records[guid] = here
            if len(records) > MAX_LINKS:
                raise fault(f"over {MAX_LINKS:,} records, more than are read", file=repairs.file, line=row)
        elif line.startswith("["):
            _take_port(line, row, here, repairs)
        elif not _OTHER.match(line):
            repairs.mend(f"{line[:40]!r} is no line of ibnetdiscover", "left out", line=row, column=1)
    return records


def _take_port(line: str, row: int, here: _Record | None, repairs: Repairs) -> None:
    found = _PORT.match(line)
    if found is None or here is None:
        what = "is no line of a port" if here is not None else "stands before any Switch or Ca"
        repairs.mend(f"{line[:40]!r} {what}", "left out", line=row, column=1)
        return
    number, peer, peer_port, comment = int(found.group(1)), found.group(2), int(found.group(3)), found.group(4) or ""
    if number > here.port_count or number < 1:
        what = f"port {number} of {here.guid}, which has {here.port_count} ports"
        raise fault(what, file=repairs.file, line=row, column=1)
    rates = [match.group(0) for match in _RATE.finditer(_DESCRIBED.sub("", comment))]
    port = _Port(peer, peer_port, rates[-1] if rates else "", row)
    before = here.ports.get(number)
    if before is not None and (before.peer, before.peer_port) != (peer, peer_port):
        what = f"port {number} of {here.guid} leads to {peer} here and to {before.peer} in line {before.line}"
        repairs.mend(what, "the first kept", line=row, column=1)
        return
    here.ports[number] = port


@dataclass(frozen=True)
class _Cable:
    """Two ports that face each other."""

    a: str
    a_port: int
    b: str
    b_port: int
    rate: str


def _cables(records: dict[str, _Record], repairs: Repairs) -> list[_Cable]:
    """Every cable once, in the order of the file; both ends must agree."""
    taken: dict[tuple[str, int], _Cable] = {}
    cables: list[_Cable] = []
    for record in records.values():
        for number, port in record.ports.items():
            if (record.guid, number) in taken:
                continue
            rate = port.rate
            peer = records.get(port.peer)
            back = peer.ports.get(port.peer_port) if peer is not None else None
            where = {"line": port.line, "column": 1}
            facing = f"{port.peer}[{port.peer_port}]"
            if (port.peer, port.peer_port) in taken:
                what = f"{facing} is the end of two cables"
                repairs.mend(what, "the first kept", **where)
                continue
            if back is None:
                what = f"port {number} of {record.guid} leads to {facing}, which no record shows: the file is cut short"
                repairs.mend(what, "taken from this end", **where)
            elif (back.peer, back.peer_port) != (record.guid, number):
                what = f"port {number} of {record.guid} leads to {facing}, but line {back.line} says otherwise"
                repairs.mend(what, "taken from this end", **where)
            elif back.rate and rate and back.rate != rate:
                what = f"the ends of a cable run at {rate} and {back.rate} (line {back.line})"
                repairs.mend(what, "the slower taken", **where)
                rate = min(rate, back.rate, key=lambda word: _bytes_per_s(word) or 0.0)
            cable = _Cable(record.guid, number, port.peer, port.peer_port, rate or (back.rate if back else ""))
            taken[cable.a, cable.a_port] = taken[cable.b, cable.b_port] = cable
            cables.append(cable)
    return cables


def _bytes_per_s(rate: str) -> float | None:
    """`4xNDR` as bytes/s one way; None when the tool did not know."""
    width, _, speed = rate.partition("x")
    if not width.isdecimal() or speed not in LANE_BITS_PER_S:
        return None
    return int(width) * LANE_BITS_PER_S[speed] / 8.0


def _fabric(records: dict[str, _Record], cables: list[_Cable], repairs: Repairs) -> Between:
    seen = [*records, *(cable.b for cable in cables)]
    described = {guid: records[guid].description if guid in records else "" for guid in seen}
    pseudo = {guid for guid in described if _AGGREGATION.search(described[guid])}
    routers = {guid for guid in described if guid[0] == "R"}
    switches = _switch_names({guid: text for guid, text in described.items() if guid[0] == "S"})
    hosts, adapters = _hosts({g: text for g, text in described.items() if g[0] == "H" and g not in pseudo})
    if not hosts:
        raise fault("shows no adapters of hosts (Ca records)", file=repairs.file)
    nodes = list(dict.fromkeys(hosts.values()))
    if len(nodes) > MAX_NODES:
        raise fault(f"shows {len(nodes):,} hosts; at most {MAX_NODES:,} are read", file=repairs.file)
    if not set(nodes).isdisjoint(switches.values()):
        switches = {guid: guid for guid in switches}
    rails = _rails(cables, hosts, adapters)
    links = _links(cables, {**switches, **hosts}, rails, _heights(cables, hosts))
    notes = [*repairs.notes, *_notes(links, hosts, adapters, switches, len(routers))]
    if pseudo:
        notes.append(
            f"{len(pseudo):,} aggregation nodes of switches (SHARP) are left out: all-reduces may be added there"
        )
    names = tuple(switches.values())
    notes += part_notes(nodes, names, links)
    return Between(FORMAT, tuple(nodes), names, tuple(links), notes=tuple(notes))


def _switch_names(described: dict[str, str]) -> dict[str, str]:
    """`MF0;leaf1:MQM9700/U1` is leaf1, `MF0;big:CS8500/L10/U1` big/L10; the GUID when that names two switches."""
    names = {}
    for guid, text in described.items():
        name, _, model = text.rpartition(";")[2].partition(":")
        slot = "/".join(part for part in model.split("/")[1:] if part != "U1")
        plain = name if ";" in text and name and not set(name) & set(" /") else guid
        names[guid] = f"{plain}/{slot}" if slot and plain != guid else plain
    many = Counter(names.values())
    return {guid: name if many[name] == 1 else guid for guid, name in names.items()}


def _hosts(described: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The host and the name of every adapter; an adapter whose description names no host is one by itself."""
    hosts, adapters = {}, {}
    for guid, text in described.items():
        found = _HOST.fullmatch(text.strip())
        hosts[guid] = found.group(1) if found else guid
        adapters[guid] = found.group(2) if found else ""
    return hosts, adapters


def _rails(cables: list[_Cable], hosts: dict[str, str], adapters: dict[str, str]) -> dict[tuple[str, int], int]:
    """The rail of every connected port of a host: the place of its adapter's name and port among all of the file.

    Hosts that name their adapters differently have more names than adapters: then the place among the host's own.
    """
    ports: dict[str, list[_Place]] = {}
    for cable in cables:
        for guid, port in ((cable.a, cable.a_port), (cable.b, cable.b_port)):
            if guid in hosts:
                ports.setdefault(hosts[guid], []).append((_natural(adapters[guid]), port, guid))
    names = sorted({place[:2] for found in ports.values() for place in found})
    if len(names) == max(map(len, ports.values()), default=0):
        rank = {name: rail for rail, name in enumerate(names)}
        return {(guid, port): rank[name, port] for found in ports.values() for name, port, guid in found}
    return {(guid, port): rail for found in ports.values() for rail, (_, port, guid) in enumerate(sorted(found))}


def _natural(name: str) -> str:
    """For sorting: `mlx5_10` after `mlx5_9`."""
    return _NUMBERS.sub(lambda digits: digits.group(0).zfill(20), name[:64])


def _heights(cables: list[_Cable], hosts: dict[str, str]) -> dict[str, int]:
    """How many cables each switch is away from the nearest host: the lower end of a link between switches is nearer."""
    near: dict[str, list[str]] = {}
    for cable in cables:
        near.setdefault(cable.a, []).append(cable.b)
        near.setdefault(cable.b, []).append(cable.a)
    heights = dict.fromkeys(hosts, 0)
    ready = list(hosts)
    for guid in ready:
        for other in near.get(guid, ()):
            if other not in heights:
                heights[other] = heights[guid] + 1
                ready.append(other)
    return heights


def _links(
    cables: list[_Cable], names: dict[str, str], rails: dict[tuple[str, int], int], heights: dict[str, int]
) -> list[Link]:
    """Cables as links, the lower end first; parallel ones of one rate and rail become one with a count."""
    counts: Counter[tuple[str, str, str, int | None]] = Counter()
    for cable in cables:
        if cable.a in names and cable.b in names:
            rail = rails.get((cable.a, cable.a_port), rails.get((cable.b, cable.b_port)))
            a, b = names[cable.a], names[cable.b]
            upwards = (heights.get(cable.a, 0), a) <= (heights.get(cable.b, 0), b)
            counts[(a, b, cable.rate, rail) if upwards else (b, a, cable.rate, rail)] += 1
    links = []
    for (a, b, rate, rail), count in counts.items():
        value = _bytes_per_s(rate)
        said = None if value is None else Said(value, f"file: {rate}")
        links.append(Link(a, b, "network", count=count, bytes_per_s=said, rail=rail))
    return links


def _notes(
    links: list[Link], hosts: dict[str, str], adapters: dict[str, str], switches: dict[str, str], routers: int
) -> list[str]:
    notes = []
    rates = Counter(link.bytes_per_s.source.removeprefix("file: ") for link in links if link.bytes_per_s is not None)
    if len(rates) > 1:
        shown = ", ".join(f"{rate} {count:,} x" for rate, count in rates.most_common())
        notes.append(f"links of several rates: {shown}; slower ones may be degraded")
    unknown = sum(link.bytes_per_s is None for link in links)
    if unknown:
        notes.append(f"{unknown:,} links have no known rate")
    per_host = Counter(hosts.values())
    counts = sorted(set(per_host.values()))
    if len(counts) > 1:
        notes.append(f"uneven: hosts have {counts[0]} to {counts[-1]} adapters")
    nameless = [guid for guid, name in adapters.items() if not name]
    if nameless:
        notes.append(f"{len(nameless):,} adapters name no host in their description; each is taken as a node")
    named = sorted({name for guid, name in adapters.items() if name}, key=_natural)
    if named and counts[-1] > 1:
        shown = ", ".join(named[:16]) + (", ..." if len(named) > 16 else "")
        notes.append(f"rails are the adapters of a host in the order of their names: {shown}")
    numbered = sum(name == guid for guid, name in switches.items())
    if numbered:
        notes.append(f"{numbered:,} switches go by their GUID: descriptions do not tell them apart")
    if routers:
        notes.append(f"{routers:,} routers are left out")
    return notes
