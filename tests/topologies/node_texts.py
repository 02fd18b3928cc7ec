"""Small look-alikes of what tools print about one node, and tables built from a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

LEGEND = """
Legend:

  X    = Self
  SYS  = between sockets
  PIX  = at most one switch
  NV#  = # links
"""


def smi(names: Sequence[str], relation: Callable[[str, str], str], tail: Sequence[str] = ()) -> str:
    """A table as `nvidia-smi topo -m` prints it, with tabs; `tail`: affinities of the GPU rows."""
    head = ["", *names, *(("CPU Affinity", "NUMA Affinity", "GPU NUMA ID") if tail else ())]
    rows = [
        [a, *(" X " if a == b else relation(a, b) for b in names), *([tail[i]] if i < len(tail) else [])]
        for i, a in enumerate(names)
    ]
    return "\n".join("\t".join(row) for row in [head, *rows]) + "\n"


def gpus(count: int, first: int = 0) -> list[str]:
    return [f"GPU{place}" for place in range(first, first + count)]


def nvswitch(count: int = 8, links: int = 18) -> str:
    """All GPUs through NVSwitch, on two sockets."""
    return smi(gpus(count), lambda a, b: f"NV{links}", [f"0-15\t{place * 2 // count}\t\tN/A" for place in range(count)])


def with_nics() -> str:
    """4 GPUs through NVSwitch; NICs and GPUs 0 and 1 share a PCIe switch, so do 2 and 3; NIC 4 is for storage."""

    def half(name: str) -> int:
        return int(name[3:]) // 2

    def relation(a: str, b: str) -> str:
        if a.startswith("GPU") and b.startswith("GPU"):
            return "NV18"
        if "NIC4" in (a, b):
            return "SYS"
        return "PIX" if half(a) == half(b) else "SYS"

    names = [*gpus(4), *(f"NIC{place}" for place in range(5))]
    table = smi(names, relation, ["0-15,32-47\t0\t\tN/A"] * 2 + ["16-31,48-63\t1\t\tN/A"] * 2)
    first, rest = table.split("\n", 1)
    nics = "\nNIC Legend:\n\n" + "\n".join(f"  NIC{place}: mlx5_{place + 2}" for place in range(5)) + "\n"
    return f"root@box:~# nvidia-smi topo -m\n\t\x1b[4m{first.strip()}\x1b[0m\n{rest}{LEGEND}{nics}"


def pcie_pairs() -> str:
    """4 PCIe GPUs: 0 and 1 under several switches, 2 and 3 under one, on two sockets."""
    near = {frozenset({"GPU0", "GPU1"}): "PXB", frozenset({"GPU2", "GPU3"}): "PIX"}
    return smi(gpus(4), lambda a, b: near.get(frozenset({a, b}), "SYS"), ["0-7\t0"] * 2 + ["8-15\t1"] * 2)


def islands(size: int = 4) -> str:
    """Two NVLink islands joined over the sockets."""
    return smi(
        gpus(2 * size),
        lambda a, b: "NV18" if int(a[3:]) // size == int(b[3:]) // size else "SYS",
        ["0-7\t0"] * size + ["8-15\t1"] * size,
    )


ROCM = """
======================= ROCm System Management Interface =======================
=========================== Weight between two GPUs ============================
       GPU0         GPU1         GPU2         GPU3
GPU0   0            15           15           30
GPU1   15           0            30           15
GPU2   15           30           0            15
GPU3   30           15           15           0

============================ Hops between two GPUs =============================
       GPU0         GPU1         GPU2         GPU3
GPU0   0            1            1            2
GPU1   1            0            2            1
GPU2   1            2            0            1
GPU3   2            1            1            0

========================== Link Type between two GPUs ==========================
       GPU0         GPU1         GPU2         GPU3
GPU0   0            XGMI         XGMI         XGMI
GPU1   XGMI         0            XGMI         XGMI
GPU2   XGMI         XGMI         0            XGMI
GPU3   XGMI         XGMI         XGMI         0

================================== Numa Nodes ==================================
GPU[0]\t\t: (Topology) Numa Node: 0
GPU[0]\t\t: (Topology) Numa Affinity: 0
GPU[1]\t\t: (Topology) Numa Node: 0
GPU[2]\t\t: (Topology) Numa Node: 1
GPU[3]\t\t: (Topology) Numa Node: 1
============================= End of ROCm SMI Log ==============================
"""
ROCM_PCIE = """Link Type between two GPUs
GPU0 GPU1
GPU0 0 PCIE
GPU1 PCIE 0
GPU 0          : (Topology) Numa Node: 0
GPU 1          : (Topology) Numa Node: 1
"""
AMD = """root@box:~# amd-smi topology
ACCESS TABLE:
             0000:0c:00.0 0000:22:00.0 0000:38:00.0
0000:0c:00.0 ENABLED      ENABLED      ENABLED
0000:22:00.0 ENABLED      ENABLED      ENABLED
0000:38:00.0 ENABLED      ENABLED      ENABLED
WEIGHT TABLE:
             0000:0c:00.0 0000:22:00.0 0000:38:00.0
0000:0c:00.0 0            15           15
0000:22:00.0 15           0            15
0000:38:00.0 15           15           0
HOPS TABLE:
             0000:0c:00.0 0000:22:00.0 0000:38:00.0
0000:0c:00.0 0            1            1
0000:22:00.0 1            0            1
0000:38:00.0 1            1            0
LINK TYPE TABLE:
             0000:0c:00.0 0000:22:00.0 0000:38:00.0
0000:0c:00.0 SELF         XGMI         XGMI
0000:22:00.0 XGMI         SELF         XGMI
0000:38:00.0 XGMI         XGMI         SELF
NUMA BW TABLE:
             0000:0c:00.0 0000:22:00.0 0000:38:00.0
0000:0c:00.0 N/A          50000-50000  50000-50000
0000:22:00.0 50000-50000  N/A          50000-50000
0000:38:00.0 50000-50000  50000-50000  N/A
"""
NPU = """\t   NPU0       NPU1       NPU2       NPU3       CPU Affinity
NPU0       X          HCCS       HCCS       HCCS       144-167
NPU1       HCCS       X          HCCS       HCCS       144-167
NPU2       HCCS       HCCS       X          HCCS       0-23
NPU3       HCCS       HCCS       HCCS       X          0-23

Legend:

  X    = Self
  HCCS = Connection traversing HCCS.
"""
NPU_DIES = """           Phy-ID4   Phy-ID5   Phy-ID6   Phy-ID7
Phy-ID4    X         SIO       HCCS_SW   HCCS_SW
Phy-ID5    SIO       X         HCCS_SW   HCCS_SW
Phy-ID6    HCCS_SW   HCCS_SW   X         SIO
Phy-ID7    HCCS_SW   HCCS_SW   SIO       X
"""
NCCL = """<!-- written by hand -->
<system version="1">
  <cpu numaid="0" affinity="ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:10:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:11:00.0" class="0x030200" vendor="0x10de" device="0x20b2" link_speed="16 GT/s" link_width="16">
        <gpu dev="1" sm="80" rank="1" gdr="1">
          <nvlink target="0000:c8:00.0" count="6" tclass="0x068000"/>
          <nvlink target="0000:c9:00.0" count="6" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:12:00.0" class="0x020700" link_speed="16 GT/s" link_width="8">
        <nic>
          <net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="ffff0000" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:90:00.0" class="0x060400" link_speed="8 GT/s" link_width="16">
      <pci busid="0000:91:00.0" class="0x030200" vendor="0x10de" device="0x20b2" link_speed="16 GT/s" link_width="16">
        <gpu dev="0" sm="80" rank="0" gdr="1">
          <nvlink target="0000:c8:00.0" count="6" tclass="0x068000"/>
          <nvlink target="0000:c9:00.0" count="6" tclass="0x068000"/>
        </gpu>
      </pci>
    </pci>
  </cpu>
</system>
"""
RCCL = """<system version="2">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1">
    <pci busid="0000:0c:00.0" class="0x120000" vendor="0x1002" device="0x74a1" link_speed="32 GT/s" link_width="16">
      <gpu dev="0" sm="304" gcn="gfx942" arch="38911" rank="0" gdr="1">
        <xgmi target="0000:15:00.0" count="1" tclass="0x120000"/>
        <xgmi target="0000:1e:00.0" count="1" tclass="0x120000"/>
      </gpu>
    </pci>
    <pci busid="0000:15:00.0" class="0x120000" vendor="0x1002" device="0x74a1" link_speed="32 GT/s" link_width="16">
      <gpu dev="1" sm="304" gcn="gfx942" arch="38911" rank="1" gdr="1">
        <xgmi target="0000:0c:00.0" count="1" tclass="0x120000"/>
        <xgmi target="0000:1e:00.0" count="1" tclass="0x120000"/>
      </gpu>
    </pci>
    <pci busid="0000:1e:00.0" class="0x120000" vendor="0x1002" device="0x74a1" link_speed="32 GT/s" link_width="16">
      <gpu dev="2" sm="304" gcn="gfx942" arch="38911" rank="2" gdr="1">
        <xgmi target="0000:0c:00.0" count="1" tclass="0x120000"/>
        <xgmi target="0000:15:00.0" count="1" tclass="0x120000"/>
      </gpu>
    </pci>
    <nic>
      <net name="eth0" dev="0" speed="25000" port="0" guid="0x0" maxconn="65536" gdr="0"/>
    </nic>
  </cpu>
</system>
"""
CLOUD = """<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0001:00:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>
      <pci busid="0101:00:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16"/>
    </pci>
    <pci busid="ffff:ff:02.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0002:00:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>
      <pci busid="0102:00:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16"/>
    </pci>
  </cpu>
</system>
"""
GRAPHS = """<graphs version="1">
  <graph id="0" pattern="4" nchannels="1" speedintra="12" speedinter="12" typeintra="SYS" typeinter="PIX">
    <channel><gpu dev="0"/><gpu dev="1"/></channel>
  </graph>
</graphs>
"""
SLURM = """SwitchName=spine Switches=leaf[1-2]
SwitchName=leaf1 Nodes=n[1-4]
SwitchName=leaf2 Nodes=n[5-8]
"""
TEXTS = {
    "nvswitch": nvswitch(),
    "nics": with_nics(),
    "pairs": pcie_pairs(),
    "islands": islands(),
    "rocm": ROCM,
    "rocm pcie": ROCM_PCIE,
    "amd": AMD,
    "npu": NPU,
    "npu dies": NPU_DIES,
    "nccl": NCCL,
    "rccl": RCCL,
    "cloud": CLOUD,
    "graphs": GRAPHS,
}
"""One of each feature, for the fuzz test."""
