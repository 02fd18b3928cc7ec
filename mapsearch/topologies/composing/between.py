"""The fabric between nodes with every rate filled in.

Contents: Cable, Net, net_of.

Links of nodes are dealt to their NICs; links between switches without a rate get what the nodes below can send, shared
among the ways up, over the oversubscription that the user says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mapsearch.errors import InputError, MissingFact
from mapsearch.topologies.composing.node import SAME, Plan
from mapsearch.topologies.composing.wishes import Wishes, rate_text
from mapsearch.topologies.importers.base import Between, Link, Repairs
from mapsearch.topologies.importers.evenness import parts
from mapsearch.topologies.importers.parts import load_parts

ROOT = "cluster"


@dataclass(frozen=True)
class Cable:
    """A link between a port of a node (`node`, index of its NIC) and a switch, or between two switches."""

    a: str
    b: str
    bytes_per_s: float
    """Of all parallel ones, one way."""
    latency_s: float
    port: int = -1
    """NIC of node `a`; -1 between switches."""
    other_port: int = -1
    """NIC of node `b`, for links straight between nodes."""


@dataclass
class Net:
    """Nodes and switches with their links."""

    nodes: list[str]
    switches: list[str]
    cables: list[Cable] = field(default_factory=list)
    port_rates: dict[tuple[str, int], float] = field(default_factory=dict)
    """Bytes/s of each NIC that the fabric's own rates changed."""
    sources: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def net_of(between: Between, plan: Plan, wishes: Wishes, *, file: str) -> Net:
    """The fabric with all rates. Raises InputError, MissingFact naming the option."""
    return _Wirer(between, plan, wishes, file, Repairs(file, wishes.repair)).net()


@dataclass
class _Wirer:
    between: Between
    plan: Plan
    wishes: Wishes
    file: str
    repairs: Repairs

    def net(self) -> Net:
        nodes, switches, links = self._one_part(*_with_units(self.between))
        net = Net(nodes, switches, notes=list(self.between.notes))
        known = set(nodes)
        per_node: dict[str, list[Link]] = defaultdict(list)
        straight: dict[str, list[Link]] = defaultdict(list)
        up: list[Link] = []
        for link in links:
            ends = [end for end in (link.a, link.b) if end in known]
            if len(ends) == 2:
                straight[link.a].append(link)
                straight[link.b].append(link)
            elif ends:
                per_node[ends[0]].append(link)
            else:
                up.append(link)
        for node in nodes:
            self._wire(node, per_node[node], net)
        self._straight(straight, net)
        self._uplinks(up, net)
        net.notes += self.repairs.notes
        return net

    def _one_part(
        self, nodes: list[str], switches: list[str], links: list[Link]
    ) -> tuple[list[str], list[str], list[Link]]:
        """All that hangs together; several parts are refused, or the largest is kept when repairs are allowed."""
        found = parts([*nodes, *switches], links)
        known = set(nodes)
        sizes = [sum(name in known for name in part) for part in found]
        if sum(size > 0 for size in sizes) > 1:
            order = sorted(range(len(found)), key=lambda place: -sizes[place])
            lower = {link.a for link in links}
            shown = "; ".join(
                f"{_top(found[place], lower, known)} with {sizes[place]:,} nodes" for place in order[:4] if sizes[place]
            )
            self.repairs.mend(
                f"falls into {sum(size > 0 for size in sizes)} parts that no switch joins: {shown}",
                f"the largest kept, {sizes[order[0]]:,} of {len(nodes):,} nodes",
            )
            kept = set(found[order[0]])
        else:
            kept = set(found[sizes.index(max(sizes))]) if found else set()
        return (
            [name for name in nodes if name in kept],
            [name for name in switches if name in kept],
            [link for link in links if link.a in kept],
        )

    def _wire(self, node: str, links: Sequence[Link], net: Net) -> None:
        """The NICs of a node to the switches that it has links to."""
        ports = self.plan.port_rates
        dealt = self._dealt(node, links)
        half_s = (load_parts().latency.network - load_parts().latency.pcie) / 2
        said: dict[int, float] = defaultdict(float)
        for link, places in dealt:
            switch = link.b if link.a == node else link.a
            told = link.bytes_per_s.value * link.count if link.bytes_per_s else None
            share = self._share(node, link, told, places, net)
            for place in places:
                times = sum(place in others for _, others in dealt)
                rate = share if share is not None else ports[place].value / times
                said[place] += rate
                latency_s = link.latency_s.value if link.latency_s else half_s
                net.cables.append(Cable(node, switch, rate, latency_s, port=place))
        for place, rate in said.items():
            net.port_rates[node, place] = rate

    def _dealt(self, node: str, links: Sequence[Link]) -> list[tuple[Link, list[int]]]:
        """Which NICs each link of a node stands for: by rail, one each, a share each, or all."""
        count = len(self.plan.ports)
        if links and all(link.rail is not None for link in links):
            wrong = next((link for link in links if (link.rail or 0) >= count), None)
            if wrong is not None:
                raise InputError(
                    f"{node} has a link on rail {wrong.rail} (from 0), but its node has {count} NICs", file=self.file
                )
            return [(link, [link.rail or 0]) for link in links]
        if len(links) == 1:
            return [(links[0], list(range(count)))]
        if links and count % len(links) == 0:
            each = count // len(links)
            return [(link, list(range(place * each, (place + 1) * each))) for place, link in enumerate(links)]
        return [(link, list(range(count))) for link in links]

    def _share(self, node: str, link: Link, told: float | None, places: Sequence[int], net: Net) -> float | None:
        """Bytes/s of each NIC on a link whose rate the fabric says, after it was compared with the NICs' own."""
        if told is None:
            return None
        own = [self.plan.port_rates[place] for place in places]
        total, each = sum(said.value for said in own), own[0].value
        net.sources["network ports"] = f"file; {rate_text(told)} each"
        if abs(told / total - 1.0) <= SAME:
            return None
        assumed = all(said.source.startswith(("datasheet", "assumed")) for said in own)
        if not assumed:
            least = min(told, total)
            self.repairs.mend(
                f"the link of {node} has {rate_text(told)}, but its {len(places)} NIC{'s' * (len(places) > 1)} "
                f"{rate_text(each)} each, {rate_text(total)} together ({own[0].source})",
                f"taken as {rate_text(least)}",
            )
            return least / len(places)
        return told / len(places)

    def _straight(self, straight: Mapping[str, Sequence[Link]], net: Net) -> None:
        """Links straight from node to node: every NIC has its share of each."""
        latency_s = load_parts().latency.network - load_parts().latency.pcie
        done: set[int] = set()
        for node, links in straight.items():
            for link in links:
                if node != link.a or id(link) in done:
                    continue
                done.add(id(link))
                degree = max(len(straight[link.a]), len(straight[link.b]))
                for place, said in enumerate(self.plan.port_rates):
                    told = link.bytes_per_s.value * link.count / len(self.plan.ports) if link.bytes_per_s else None
                    rate = told if told is not None else said.value / degree
                    net.cables.append(Cable(link.a, link.b, rate, latency_s, port=place, other_port=place))

    def _uplinks(self, links: Sequence[Link], net: Net) -> None:
        """Links between switches, those without a rate from the bottom up."""
        below: dict[str, float] = defaultdict(float)
        for cable in net.cables:
            below[cable.b] += cable.bytes_per_s
        step_s = load_parts().latency.switch
        uplink = self.wishes.uplink
        for switch in self._order(links, net):
            ways = [link for link in links if link.a == switch]
            open_ways = sum(link.count for link in ways if link.bytes_per_s is None)
            for link in ways:
                if link.bytes_per_s is not None:
                    rate = link.bytes_per_s.value * link.count
                elif uplink.rate is not None:
                    rate = uplink.rate.value * link.count
                else:
                    rate = below[switch] / (uplink.ratio or 1.0) / open_ways * link.count
                source = "file" if link.bytes_per_s is not None else uplink.source
                net.sources["links between switches"] = source
                if rate <= 0.0:
                    raise MissingFact(
                        f"says no rate of the link {link.a} - {link.b}, and nothing below it sends; give --uplink, "
                        "such as 400Gb/s",
                        file=self.file,
                    )
                latency_s = link.latency_s.value if link.latency_s else step_s
                net.cables.append(Cable(link.a, link.b, rate, latency_s))
                below[link.b] += rate

    def _order(self, links: Sequence[Link], net: Net) -> list[str]:
        """Switches from the bottom up; a link's first end is the lower one."""
        waiting: dict[str, int] = dict.fromkeys(net.switches, 0)
        above: dict[str, list[str]] = defaultdict(list)
        for link in links:
            waiting[link.b] += 1
            above[link.a].append(link.b)
        ready = [switch for switch in net.switches if waiting[switch] == 0]
        for switch in ready:
            for top in above[switch]:
                waiting[top] -= 1
                if waiting[top] == 0:
                    ready.append(top)
        if len(ready) < len(net.switches):
            rest = [switch for switch in net.switches if waiting[switch] > 0]
            if self.wishes.uplink.rate is None and any(link.bytes_per_s is None for link in links if link.a in rest):
                raise MissingFact(
                    f"has links between switches in a circle ({', '.join(rest[:3])}), so their rate does not follow "
                    "from the nodes below; give --uplink, such as 400Gb/s",
                    file=self.file,
                )
            ready += rest
        return ready


def _with_units(between: Between) -> tuple[list[str], list[str], list[Link]]:
    """Nodes, switches and links; named units (`block0/rack1`) and a flat list of nodes become switches."""
    nodes, switches, links = list(between.nodes), list(between.switches), list(between.links)
    joined = {end for link in links for end in (link.a, link.b)}
    loose = [node for node in nodes if node not in joined]
    if not loose:
        return nodes, switches, links
    tops: dict[str, None] = {}
    taken = {*nodes, *switches}
    for node in loose:
        path = between.labels.get(node, "")
        words = path.split("/") if path else []
        units = [_free("/".join(words[: depth + 1]), taken) for depth in range(len(words))]
        units = units or [_free(ROOT, taken)]
        for inner, outer in zip(reversed(units), reversed(units[:-1]), strict=False):
            if inner not in tops:
                links.append(Link(inner, outer, "network"))
            tops.setdefault(inner)
        tops.setdefault(units[0])
        links.append(Link(node, units[-1], "network"))
    outermost = [unit for unit in tops if not any(link.a == unit for link in links)]
    if len(outermost) > 1:
        root = _free(ROOT, {*taken, *tops})
        links += [Link(unit, root, "network") for unit in outermost]
        tops.setdefault(root)
    return nodes, [*switches, *tops], links


def _free(name: str, taken: set[str]) -> str:
    return f"{name}.unit" if name in taken else name


def _top(part: Sequence[str], lower: set[str], nodes: set[str]) -> str:
    """What a part is called by: its topmost switch, or a node when it has none."""
    return next((name for name in part if name not in lower and name not in nodes), part[0])
