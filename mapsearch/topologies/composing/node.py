"""The inside of a node with every rate filled in: from its file, the command line, or the table of known parts.

Contents: Plan, PlanLink, plan_of.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import networkx as nx

from mapsearch.errors import InputError, MissingFact
from mapsearch.topologies.composing.wishes import COMMAND_LINE, Wishes, rate_text, sourced
from mapsearch.topologies.importers.base import Inside, Link, LinkKind, Repairs, Said, Vertex
from mapsearch.topologies.importers.parts import PartSpec, load_parts, rate_of

FAST = ("nvlink", "xgmi", "hccs", "sio")
OWN_PORT = ".nic"
"""What follows a device's name in that of the NIC that is taken for it."""
SAME = 0.01
"""Rates that differ by less are the same number, rounded."""


@dataclass(frozen=True)
class PlanLink:
    """A link inside a node; all parallel ones together, one way."""

    a: str
    b: str
    bytes_per_s: float
    latency_s: float


@dataclass
class Plan:
    """One node, ready to be repeated: what is in it and how it reaches the network."""

    part: PartSpec
    devices: list[str]
    vertices: list[Vertex] = field(default_factory=list)
    """Everything but NICs that are not used."""
    links: list[PlanLink] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)
    """NICs that reach the network, in the order of the devices they are near to."""
    port_rates: list[Said] = field(default_factory=list)
    hubs: list[str] = field(default_factory=list)
    """Switches of the fast links."""
    sources: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def plan_of(inside: Inside, part: PartSpec, wishes: Wishes, *, file: str, network: bool) -> Plan:
    """The node with all rates. `network`: its NICs are needed. Raises InputError, MissingFact naming the option."""
    return _Planner(inside, part, wishes, file, Repairs(file, wishes.repair)).plan(network)


@dataclass
class _Planner:
    inside: Inside
    part: PartSpec
    wishes: Wishes
    file: str
    repairs: Repairs

    def plan(self, network: bool) -> Plan:
        plan = Plan(self.part, [vertex.name for vertex in self.inside.of_kind("device")])
        plan.notes += self.inside.notes
        links = [*self.inside.links, *self._board(plan)]
        hubs = [Vertex(name, "switch") for name in plan.hubs]
        used = self._ports(links, plan) if network else []
        kept = self._pruned([*self.inside.vertices, *hubs], links, used)
        names = {vertex.name for vertex in kept}
        links = [link for link in links if {link.a, link.b} <= names]
        fast = [link for link in links if link.kind in FAST]
        tree = [link for link in links if link.kind not in FAST]
        self._fast(fast, plan)
        rates = [self._port_rate(nic, len(used), len(plan.devices)) for nic in used]
        if _joined(plan.devices, fast):
            plan.vertices = [one for one in kept if one.kind == "device" or _touches(one.name, fast)]
            self._shared(plan, used, rates, tree)
        else:
            plan.vertices = kept
            self._tree(tree, plan)
            self._whole_ports(plan, used, rates)
        plan.notes += self.repairs.notes
        return plan

    def _board(self, plan: Plan) -> list[Link]:
        """Fast links that the format leaves out, as the vendor's boards have them."""
        devices, part = plan.devices, self.part
        if self.inside.scale_up_said or len(devices) < 2 or part.board == "none":
            if not self.inside.scale_up_said and len(devices) > 1:
                plan.notes.append(f"no fast links between devices are listed, and {part.name} has no usual board")
            return []
        kind: LinkKind = "nvlink" if part.nvlink else "xgmi" if part.xgmi else "hccs"
        source = f"assumed: not in the file; {part.name} boards join all devices"
        if part.board == "switch":
            plan.hubs.append(f"{kind}-switch")
            plan.notes.append(f"{kind} is not listed in the file: {part.most_links} links of each device to switches, "
                              f"as on boards of {part.name}")  # fmt: skip
            plan.sources["board"] = source
            return [Link(name, f"{kind}-switch", kind, count=part.most_links or 1) for name in devices]
        plan.notes.append(f"{kind} is not listed in the file: one link between any two devices, as on boards of "
                          f"{part.name}")  # fmt: skip
        plan.sources["board"] = source
        return [Link(a, b, kind) for a, b in itertools.combinations(devices, 2)]

    def _fast(self, links: Sequence[Link], plan: Plan) -> None:
        devices = set(plan.devices)
        latency_s = load_parts().latency.scale_up
        total: dict[str, int] = defaultdict(int)
        for link in links:
            for end in {link.a, link.b} & devices:
                total[end] += link.count if link.kind == "nvlink" else 0
        most = self.part.most_links
        name, worst = max(((name, total[name]) for name in plan.devices), key=lambda one: one[1])
        share = 1.0
        if most and worst > most:
            each = self._link_rate(next(link for link in links if link.kind == "nvlink"), False).value
            self.repairs.mend(
                f"{name} has {worst} NVLinks ({rate_text(worst * each)}), but {self.part.name} has {most} "
                f"({rate_text(most * each)})",
                f"taken as {most}",
            )
            share = most / worst
        for link in links:
            to_switch = not {link.a, link.b} <= devices
            said = self._link_rate(link, to_switch)
            plan.sources[f"{link.kind} links"] = sourced(said)
            rate = said.value * link.count * (share if link.kind == "nvlink" else 1.0)
            plan.links.append(PlanLink(link.a, link.b, rate, latency_s / 2 if to_switch else latency_s))
            hub = link.b if link.b not in devices else link.a
            if to_switch and hub not in plan.hubs:
                plan.hubs.append(hub)

    def _link_rate(self, link: Link, to_switch: bool) -> Said:
        if self.wishes.link_rate is not None:
            return self.wishes.link_rate
        return rate_of(link, self.part, to_switch=to_switch, file=self.file)

    def _slot(self, plan: Plan) -> Said:
        """The device's own slot."""
        generation = self.wishes.pcie or self.part.pcie
        if not generation:
            raise MissingFact(
                f"does not say the PCIe rate, and it is not known for {self.part.name}; give it with --pcie: gen3, "
                "gen4, gen5 or gen6 (x16)",
                file=self.file,
            )
        said = load_parts().slot(generation)
        plan.sources["pcie links"] = f"{said.source}, where the file gives none"
        return said

    def _tree(self, links: Sequence[Link], plan: Plan) -> None:
        """PCIe and what joins sockets, as it is: the way between devices that no fast links join."""
        devices = set(plan.devices)
        half_s = load_parts().latency.pcie / 2
        for link in links:
            at_device = bool({link.a, link.b} & devices)
            rate = self._tree_rate(link, plan)
            plan.links.append(PlanLink(link.a, link.b, rate, half_s if at_device else 0.0))

    def _tree_rate(self, link: Link, plan: Plan) -> float:
        if link.kind == "smp":
            hints = {vertex.name: vertex.hint for vertex in self.inside.vertices}
            said = link.bytes_per_s or load_parts().smp_rate(hints.get(link.a) or self.wishes.pcie or self.part.pcie)
            plan.sources["links between sockets"] = sourced(said)
        else:
            said = link.bytes_per_s or self._slot(plan)
        return said.value * link.count

    def _ports(self, links: Sequence[Link], plan: Plan) -> list[Vertex]:
        """The NICs that reach the network: those that some device has none nearer than."""
        nics = self.inside.of_kind("nic")
        if not nics:
            return self._own_ports(plan)
        away = {name: _hops(name, [link for link in links if link.kind not in FAST]) for name in plan.devices}
        near: list[str] = []
        for name in plan.devices:
            reached = {nic.name: away[name][nic.name] for nic in nics if nic.name in away[name]}
            least = min(reached.values(), default=0)
            near += [nic for nic, hops in reached.items() if hops == least and nic not in near]
        if self.wishes.nics == "all":
            near += [nic.name for nic in nics if nic.name not in near]
        left = [nic for nic in nics if nic.name not in near]
        if left:
            plan.notes.append(
                f"{', '.join(nic.hint or nic.name for nic in left)} left out: every device has a nearer NIC (--nics "
                "all takes them in)"
            )
        by_name = {nic.name: nic for nic in nics}
        return [by_name[name] for name in near]

    def _own_ports(self, plan: Plan) -> list[Vertex]:
        """One NIC for each device, when the file lists none."""
        rate = self.wishes.nic_rate or self.part.said("nic")
        if rate is None:
            raise MissingFact(
                f"lists no NICs, and what goes with {self.part.name} is not known; give --nic-rate, such as 400Gb/s "
                "(one for each device)",
                file=self.file,
            )
        if rate.source != COMMAND_LINE:
            plan.notes.append(
                f"lists no NICs: one of {rate_text(rate.value)} for each device is taken ({rate.source}; --nic-rate "
                "changes it)"
            )
        return [Vertex(f"{name}{OWN_PORT}", "nic", bytes_per_s=rate) for name in plan.devices]

    def _pruned(self, vertices: Sequence[Vertex], links: Sequence[Link], used: Sequence[Vertex]) -> list[Vertex]:
        """Without NICs that are not used, and without switches that then lead nowhere."""
        ports = {nic.name for nic in used}
        kept = {vertex.name for vertex in vertices if vertex.kind != "nic" or vertex.name in ports}
        ends = {vertex.name for vertex in vertices if vertex.kind in ("device", "nic")}
        while True:
            degree: dict[str, int] = defaultdict(int)
            for link in links:
                if link.a in kept and link.b in kept:
                    degree[link.a] += 1
                    degree[link.b] += 1
            dead = {name for name in kept - ends if degree[name] < 2}
            if not dead:
                break
            kept -= dead
        listed = [vertex for vertex in vertices if vertex.name in kept]
        return [*listed, *(nic for nic in used if nic.name not in kept)]

    def _whole_ports(self, plan: Plan, used: Sequence[Vertex], rates: Sequence[Said]) -> None:
        """NICs where the tree has them; those that no file lists hang at their device."""
        listed = {vertex.name for vertex in self.inside.vertices}
        for nic, said in zip(used, rates, strict=True):
            self._port(plan, nic.name, said)
            if nic.name not in listed:
                self._at_device(plan, nic.name.removesuffix(OWN_PORT), nic.name, self._way(plan, said.value, 1))

    def _shared(self, plan: Plan, used: Sequence[Vertex], rates: Sequence[Said], tree: Sequence[Link]) -> None:
        """NICs dealt to devices, where fast links join all devices and PCIe only leads to the network.

        Each device has a port of its own, a share where several devices use one NIC: a switch or NIC that two devices
        have in common would look like a second way between them, which no library uses beside the fast links.
        """
        if not used:
            return
        listed = {vertex.name for vertex in self.inside.vertices}
        near = [nic for nic in used if nic.name in listed]
        deal = _dealt(plan.devices, near, tree) if near else {nic.name: [plan.devices[i]] for i, nic in enumerate(used)}
        narrow = self._narrow(plan, used, rates, tree) if near else None
        held = Counter(device for users in deal.values() for device in users)
        for nic, said in zip(used, rates, strict=True):
            users = deal[nic.name]
            for device in users:
                name = nic.name if len(users) == 1 else f"{nic.name}.{device}"
                plan.vertices.append(Vertex(name, "nic", hint=nic.hint))
                share = Said(said.value / len(users), said.source)
                self._port(plan, name, share)
                way = self._way(plan, share.value, held[device]) if narrow is None else share.value * narrow
                self._at_device(plan, device, name, way)
            plan.sources["network ports"] = sourced(said)

    def _narrow(self, plan: Plan, used: Sequence[Vertex], rates: Sequence[Said], tree: Sequence[Link]) -> float | None:
        """The share of the NICs' rates that PCIe lets through when all devices send; None when it is all."""
        graph: nx.DiGraph[str] = nx.DiGraph()
        for link in tree:
            rate = self._tree_rate(link, plan)
            for a, b in ((link.a, link.b), (link.b, link.a)):
                before = graph.edges[a, b]["capacity"] if graph.has_edge(a, b) else 0.0
                graph.add_edge(a, b, capacity=before + rate)
        for nic, said in zip(used, rates, strict=True):
            graph.add_edge(nic.name, "\n", capacity=said.value)
        for device in plan.devices:
            graph.add_edge("", device)
        total = sum(said.value for said in rates)
        flow = nx.maximum_flow_value(graph, "", "\n")
        if flow <= 0.0:
            raise InputError("has NICs that no device reaches over PCIe", file=self.file)
        if flow >= total * (1.0 - SAME):
            return None
        plan.notes.append(
            f"PCIe lets {rate_text(flow)} of the NICs' {rate_text(total)} through when all devices send at once"
        )
        return flow / total

    def _port(self, plan: Plan, name: str, said: Said) -> None:
        plan.ports.append(name)
        plan.port_rates.append(said)
        plan.sources["network ports"] = sourced(said)

    def _way(self, plan: Plan, port: float, ports: int) -> float:
        """Bytes/s from a device to one of its ports: its slot shared among them, and never less than the port."""
        known = self.part.pcie or self.wishes.pcie
        return max(port, self._slot(plan).value / ports) if known else port

    def _at_device(self, plan: Plan, device: str, nic: str, rate: float) -> None:
        """The way from a device to a port of its own."""
        plan.links.append(PlanLink(device, nic, rate, load_parts().latency.pcie / 2))

    def _port_rate(self, nic: Vertex, nics: int, devices: int) -> Said:
        told, wished = nic.bytes_per_s, self.wishes.nic_rate
        if told is not None and wished is not None and abs(told.value / wished.value - 1.0) > SAME:
            raise InputError(
                f"gives {nic.name} {rate_text(told.value)}, but --nic-rate says {rate_text(wished.value)}; leave it "
                "out",
                file=self.file,
            )
        known = self.part.said("nic") if nics == devices else None
        said = told or wished or known
        if said is None:
            raise MissingFact(
                f"does not say the rate of its {nics} NIC{'s' if nics > 1 else ''} ({devices} devices); give it with "
                "--nic-rate, such as 400Gb/s",
                file=self.file,
            )
        return said


def _joined(devices: Sequence[str], fast: Sequence[Link]) -> bool:
    """Whether fast links alone join all devices."""
    reached = _hops(devices[0], fast)
    return len(devices) > 1 and all(name in reached for name in devices)


def _touches(name: str, links: Sequence[Link]) -> bool:
    return any(name in (link.a, link.b) for link in links)


def _dealt(devices: Sequence[str], nics: Sequence[Vertex], tree: Sequence[Link]) -> dict[str, list[str]]:
    """Devices of each NIC: as near as can be, and as many for each.

    First every device gets one NIC, then NICs that are left over get the device that has fewest and is nearest.
    """
    away = {name: _hops(name, tree) for name in devices}
    users: dict[str, list[str]] = {nic.name: [] for nic in nics}
    most = math.ceil(len(devices) / len(nics))
    for name in devices:
        open_ = [nic for nic in users if len(users[nic]) < most]
        users[min(open_, key=lambda nic: (away[name].get(nic, len(tree)), len(users[nic])))].append(name)
    held = dict.fromkeys(devices, 0)
    for names in users.values():
        for name in names:
            held[name] += 1
    for nic, names in users.items():
        if not names:
            device = min(devices, key=lambda name: (away[name].get(nic, len(tree)), held[name]))
            held[device] += 1
            names.append(device)
    return users


def _hops(start: str, links: Sequence[Link]) -> dict[str, int]:
    """Links on the shortest way from a vertex to every other that can be reached."""
    near: dict[str, list[str]] = defaultdict(list)
    for link in links:
        near[link.a].append(link.b)
        near[link.b].append(link.a)
    found = {start: 0}
    todo = deque([start])
    while todo:
        here = todo.popleft()
        for there in near[here]:
            if there not in found:
                found[there] = found[here] + 1
                todo.append(there)
    return found
