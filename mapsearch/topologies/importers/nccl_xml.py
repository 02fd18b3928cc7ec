"""NCCL's and RCCL's topology files (`NCCL_TOPO_FILE`, `NCCL_TOPO_DUMP_FILE`): CPUs, PCI trees, GPUs, links, NICs.

Contents: FORMAT, detect, read.

Format: NCCL, src/graph/xml.cc and topo.cc (`net speed` is in Mb/s, `link_speed` in GT/s per lane). Files that clouds
ship list only PCI: what NVLinks there are is found out at run time and so not said here (`scale_up_said`).
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mapsearch.topologies.importers.base import Inside, Link, LinkKind, Repairs, Said, Vertex, fault
from mapsearch.topologies.importers.markup import Element, parse_xml

FORMAT = "NCCL topology XML"
MAX_GPUS = 256
MOST_MEGABITS = 1_600_000
"""Of one port: 1.6 Tb/s, the fastest announced."""
ENCODING = {2.5: 0.8, 5.0: 0.8, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 242 / 256}
"""Share of the bits on a PCIe lane that are data, by GT/s: 8b/10b, 128b/130b, flits (PCI Express specification)."""
_ROOT = re.compile(r"<\s*(system|graphs)\b")
_SPEED = re.compile(r"\s*(\d{1,4}(?:\.\d{1,3})?)\s*GT/s")
_BUS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$", re.IGNORECASE)
_FAST: dict[str, LinkKind] = {"nvlink": "nvlink", "xgmi": "xgmi"}


def detect(text: str, name: str) -> bool:
    """Whether the root is one of NCCL's, `<system>` or `<graphs>`."""
    del name
    head = re.sub(r"<!--.*?-->", "", text[:16384], flags=re.DOTALL)
    return head.lstrip().startswith("<") and _ROOT.search(head) is not None


def read(text: str, *, file: str, repair: bool = False) -> Inside:
    """The inside of the node. Raises InputError with line and column; files of graphs are refused."""
    root = parse_xml(text, file=file)
    if root.tag == "graphs":
        raise fault(
            "is a graph file of NCCL (the channels it chose), not a topology; NCCL_TOPO_DUMP_FILE writes the topology",
            file=file, line=root.line, column=root.column,
        )  # fmt: skip
    if root.tag != "system":
        raise fault(
            f"has the root <{root.tag}>; a topology has <system>", file=file, line=root.line, column=root.column
        )
    hosts = {child.attributes["host_hash"] for child in root.children if "host_hash" in child.attributes}
    if len(hosts) > 1:
        raise fault(f"holds {len(hosts)} hosts (host_hash); give the file of one", file=file, line=root.line)
    reader = _Reader(file, Repairs(file, repair))
    for cpu in root.children:
        reader.cpu(cpu)
    return reader.inside(root)


@dataclass
class _Gpu:
    """A GPU while the file is read."""

    busid: str
    element: Element
    dev: int | None
    hint: str
    numa: str
    fast: list[Element] = field(default_factory=list)


@dataclass
class _Up:
    """What leads upwards out of a part of the tree: its vertex, and the narrowest PCIe link on the way so far."""

    vertex: str
    bytes_per_s: float | None


@dataclass
class _Reader:
    file: str
    repairs: Repairs
    gpus: dict[str, _Gpu] = field(default_factory=dict)
    nics: list[Vertex] = field(default_factory=list)
    switches: list[Vertex] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    buses: dict[str, Element] = field(default_factory=dict)
    any_gpu_element: bool = False

    def cpu(self, element: Element) -> None:
        """A CPU (NUMA node) with what hangs off it."""
        if element.tag != "cpu":
            raise self._fault(f"<{element.tag}> where <cpu> is expected", element)
        numa = element.attributes.get("numaid", str(len(self.switches)))
        name = f"numa{numa}"
        if any(vertex.name == name for vertex in self.switches):
            raise self._fault(f"numaid {numa} stands twice", element)
        words = (element.attributes.get(key, "") for key in ("vendor", "familyid", "modelid"))
        at = len(self.switches)
        self.switches.append(Vertex(name, "switch", numa=numa, hint=" ".join(word for word in words if word)))
        ups = [up for child in element.children for up in self._below(child, numa)]
        if not ups:
            del self.switches[at]
        for up in ups:
            self._join(up, name)

    def _join(self, up: _Up, name: str) -> None:
        said = Said(up.bytes_per_s) if up.bytes_per_s is not None else None
        self.links.append(Link(up.vertex, name, "pcie", bytes_per_s=said))

    def _below(self, element: Element, numa: str) -> list[_Up]:
        """What an element under a CPU or a PCI bridge contributes."""
        if element.tag == "nic":
            return [up for net in _nets(element) for up in self._net(net, None)]
        if element.tag != "pci":
            return []
        return self._pci(element, numa)

    def _pci(self, element: Element, numa: str) -> list[_Up]:
        busid = self._busid(element)
        rate = self._rate(element)
        kind = element.attributes.get("class", "")[:4].lower()
        own = [child for child in element.children if child.tag == "gpu"]
        if own or (kind in ("0x03", "0x12") and not element.children):
            return [self._gpu(element, own[0] if own else None, busid, numa, rate)]
        nics = [child for child in element.children if child.tag == "nic"]
        nets = [net for nic in nics for net in _nets(nic)]
        if nics or (kind == "0x02" and not element.children):
            ups = [up for net in nets for up in self._net(net, rate)]
            return ups if nics else [self._nic(f"NIC{len(self.nics)}", None, rate)]
        ups = [up for child in element.children for up in self._below(child, numa)]
        if len(ups) == 1:  # a bridge with one thing below is only a narrower or wider piece of its way
            return [_Up(ups[0].vertex, _least(ups[0].bytes_per_s, rate))]
        if not ups:
            return []
        name = f"pcie-{busid}"
        self.switches.append(Vertex(name, "switch", numa=numa))
        for up in ups:
            self._join(up, name)
        return [_Up(name, rate)]

    def _gpu(self, pci: Element, gpu: Element | None, busid: str, numa: str, rate: float | None) -> _Up:
        facts = gpu.attributes if gpu else {}
        self.any_gpu_element |= gpu is not None
        words = []
        if "gcn" in facts:
            target = facts["gcn"].removeprefix("gfx")
            words.append(f"gfx{'90a' if target == '910' else target}")  # RCCL counts gfx90a as 910
        elif "sm" in facts:
            words.append(f"sm_{facts['sm']}")
        if "vendor" in pci.attributes and "device" in pci.attributes:
            words.append(f"{pci.attributes['vendor']}:{pci.attributes['device']}".lower())
        dev = self._whole(gpu, "dev", 0, 4095) if gpu is not None and "dev" in facts else None
        fast = [child for child in gpu.children if child.tag in _FAST] if gpu else []
        self.gpus[busid] = _Gpu(busid, gpu or pci, dev, " ".join(words), numa, fast)
        if len(self.gpus) > MAX_GPUS:
            raise self._fault(f"has more than {MAX_GPUS} GPUs", pci)
        return _Up(busid, rate)

    def _net(self, net: Element, rate: float | None) -> list[_Up]:
        name = net.attributes.get("name") or f"NIC{len(self.nics)}"
        megabits = self._whole(net, "speed", -1, 2**40) if "speed" in net.attributes else 0
        if megabits > MOST_MEGABITS:
            kilobits = megabits / 1000 <= MOST_MEGABITS
            done = f"taken as kb/s: {megabits / 1e6:,.4g} Gb/s" if kilobits else "taken as not said"
            self.repairs.mend(
                f"net {name} has speed {megabits:,} (Mb/s), {megabits / MOST_MEGABITS:,.4g} times the fastest port",
                done, line=net.line, column=net.column,
            )  # fmt: skip
            megabits = megabits // 1000 if kilobits else 0
        said = Said(megabits * 1e6 / 8) if megabits > 0 else None
        return [self._nic(name, said, rate)]

    def _nic(self, name: str, said: Said | None, rate: float | None) -> _Up:
        taken = {nic.name for nic in self.nics}
        unique = next(
            one for one in itertools.chain([name], (f"{name}.{n}" for n in itertools.count(1))) if one not in taken
        )
        self.nics.append(Vertex(unique, "nic", hint=name, bytes_per_s=said))
        return _Up(unique, rate)

    def _busid(self, element: Element) -> str:
        busid = element.attributes.get("busid", "").lower()
        if not _BUS.match(busid):
            raise self._fault(f"pci has the busid {busid[:40]!r}; one such as 0000:41:00.0 is expected", element)
        if busid in self.buses:
            raise self._fault(f"busid {busid} stands twice (first on line {self.buses[busid].line})", element)
        self.buses[busid] = element
        return busid

    def _rate(self, element: Element) -> float | None:
        """Data rate of a PCI device's own link, bytes/s one way; None when the file leaves it out."""
        match = _SPEED.match(element.attributes.get("link_speed", ""))
        width = self._whole(element, "link_width", 0, 64) if element.attributes.get("link_width") else 0
        if match is None or width == 0:
            return None
        speed = float(match.group(1))
        if speed not in ENCODING:
            raise self._fault(
                f"link_speed {match.group(1)} GT/s is no PCIe rate; {', '.join(f'{s:g}' for s in ENCODING)} are",
                element,
            )
        return speed * 1e9 / 8 * ENCODING[speed] * width

    def _whole(self, element: Element, key: str, least: int, most: int) -> int:
        text = element.attributes.get(key, "").strip()
        if not re.fullmatch(r"-?[0-9]{1,15}", text) or not least <= int(text) <= most:
            raise self._fault(f"{key} {text[:40]!r} is not a whole number from {least} to {most:,}", element)
        return int(text)

    def _fault(self, problem: str, element: Element) -> Exception:
        return fault(problem, file=self.file, line=element.line, column=element.column)

    def inside(self, root: Element) -> Inside:
        """What was read, GPUs in the order of their device numbers (else of their bus)."""
        if not self.gpus:
            raise fault("has no GPU (a pci of class 0x03 or 0x12, or a gpu element)", file=self.file, line=root.line)
        names = self._names()
        devices = [
            Vertex(names[one.busid], "device", numa=one.numa, hint=one.hint)
            for one in sorted(self.gpus.values(), key=lambda one: (len(names[one.busid]), names[one.busid]))
        ]
        fast, hubs = self._scale_up(names)
        cpus = [vertex.name for vertex in self.switches if vertex.name.startswith("numa")]
        smp = [Link(a, b, "smp") for a, b in itertools.combinations(cpus, 2)]
        renamed = [
            Link(names.get(one.a, one.a), names.get(one.b, one.b), one.kind, one.count, one.bytes_per_s)
            for one in self.links
        ]
        clash = {vertex.name for vertex in (*devices, *hubs, *self.switches)} & {nic.name for nic in self.nics}
        if clash:
            raise fault(f"a net is called {sorted(clash)[0]}, like another part", file=self.file, line=root.line)
        return Inside(
            FORMAT,
            (*devices, *self.nics, *hubs, *self.switches),
            (*fast, *renamed, *smp),
            scale_up_said=self.any_gpu_element,
            notes=tuple(self.repairs.notes),
        )

    def _names(self) -> dict[str, str]:
        """`GPU3` by device number where all have one, else by the order of the buses (as drivers count)."""
        numbered = [one.dev for one in self.gpus.values()]
        if None in numbered:
            return {busid: f"GPU{place}" for place, busid in enumerate(sorted(self.gpus))}
        seen: dict[int, _Gpu] = {}
        for one in self.gpus.values():
            if one.dev in seen:
                raise self._fault(f"two GPUs have dev {one.dev} (the other on line {seen[one.dev].element.line})",
                                  one.element)  # fmt: skip
            seen[one.dev or 0] = one
        return {one.busid: f"GPU{one.dev}" for one in self.gpus.values()}

    def _scale_up(self, names: Mapping[str, str]) -> tuple[list[Link], list[Vertex]]:
        """NVLink or xGMI between GPUs, and to switches (targets that are no GPU of the file)."""
        direct: dict[tuple[str, str], tuple[int, Element]] = {}
        hubs: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        kinds: set[LinkKind] = set()
        for one in self.gpus.values():
            for link in one.fast:
                target = link.attributes.get("target", "").lower()
                count = self._whole(link, "count", 1, 64)
                kinds.add(_FAST[link.tag])
                if target == one.busid:
                    self.repairs.mend(
                        f"{link.tag} of {names[one.busid]} ({count} links) ends at itself, so where it leads is not "
                        "said", "left out", line=link.line, column=link.column,
                    )  # fmt: skip
                elif target in self.gpus:
                    before = direct.get((one.busid, target), (0, link))[0]
                    direct[one.busid, target] = (before + count, link)
                else:
                    hubs[target][one.busid] += count
        if len(kinds) > 1:
            raise fault("has both nvlink and xgmi links", file=self.file)
        kind: LinkKind = next(iter(kinds), "nvlink")
        return self._direct(direct, kind, names) + _to_hubs(hubs, kind, names), _hub_vertices(hubs, kind)

    def _direct(
        self, direct: Mapping[tuple[str, str], tuple[int, Element]], kind: LinkKind, names: Mapping[str, str]
    ) -> list[Link]:
        """One link for each pair; both ends must say the same."""
        result = []
        for (a, b), (count, element) in direct.items():
            there = direct.get((b, a), (0, element))
            if there[0] != count and (there[0] == 0 or a < b):
                kept = max(count, there[0]) if there[0] == 0 else min(count, there[0])
                self.repairs.mend(
                    f"{names[a]} has {count} {kind} links to {names[b]}, which has {there[0] or 'none'} back",
                    f"taken as {kept}", line=element.line, column=element.column,
                )  # fmt: skip
            if there[0] == 0 or a < b:
                both = [number for number in (count, there[0]) if number]
                result.append(Link(names[a], names[b], kind, count=min(both)))
        return result


def _nets(nic: Element) -> list[Element]:
    """Ports of a NIC: as in NCCL those with a number, without the single ones that one of them puts together."""
    return [
        net for net in nic.children
        if net.tag == "net" and "dev" in net.attributes and net.attributes.get("net", "1") != "0"
    ]  # fmt: skip


def _least(first: float | None, second: float | None) -> float | None:
    rates = [rate for rate in (first, second) if rate is not None]
    return min(rates) if rates else None


def _merged(hubs: Mapping[str, Mapping[str, int]]) -> list[dict[str, int]]:
    """Switches that serve the same GPUs count as one, as in NCCL: planes of one NVSwitch fabric."""
    by_gpus: dict[frozenset[str], dict[str, int]] = {}
    for counts in hubs.values():
        served = by_gpus.setdefault(frozenset(counts), defaultdict(int))
        for gpu, count in counts.items():
            served[gpu] += count
    return list(by_gpus.values())


def _hub_vertices(hubs: Mapping[str, Mapping[str, int]], kind: LinkKind) -> list[Vertex]:
    return [Vertex(f"{kind}-switch{number}", "switch") for number in range(len(_merged(hubs)))]


def _to_hubs(hubs: Mapping[str, Mapping[str, int]], kind: LinkKind, names: Mapping[str, str]) -> list[Link]:
    merged: Sequence[Mapping[str, int]] = _merged(hubs)
    return [
        Link(names[gpu], f"{kind}-switch{number}", kind, count=count)
        for number, counts in enumerate(merged)
        for gpu, count in counts.items()
    ]
