"""Logs in the style of nccl-tests, written from a known start-up cost and bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

FACTORS = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "sendrecv": lambda n: 1.0,
}
HEADER = (
    "#                                                              out-of-place                       in-place\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
    "#wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
)
OLD_HEADER = HEADER.replace("    root ", "").replace("#wrong", "error")


def sizes(low: int = 10, high: int = 30) -> list[int]:
    return [2**power for power in range(low, high + 1)]


def printed(seconds: float) -> str:
    """Four significant digits of microseconds, as the program prints them."""
    us = seconds * 1e6
    return f"{us:.2f}" if us < 100 else f"{us:.1f}" if us < 10000 else f"{us:.0f}"


def half(size: int, seconds: float, factor: float, wrong: str, unit: float = 1.0) -> str:
    text = printed(seconds * unit)
    algbw = size / (float(text) / unit * 1e-6) / 1e9
    return f"{text:>8} {algbw:>7.2f} {algbw * factor:>7.2f} {wrong:>6}"


def row(
    size: int, seconds: float, operation: str = "all_reduce", ranks: int = 8, *, old: bool = False,
    wrong: Sequence[str] = ("0", "0"), inner: float = 1.0, factor: float | None = None, unit: float = 1.0,
) -> str:  # fmt: skip
    used = FACTORS[operation](ranks) if factor is None else factor
    shared = operation in ("reduce_scatter", "all_gather", "alltoall")
    count = size // 4 // (ranks if shared else 1)
    redop = "sum" if "reduce" in operation else "none"
    root = "" if old else f"{0 if operation == 'broadcast' else -1:>8}"
    halves = (half(size, t, used, w, unit) for t, w in zip((seconds, seconds * inner), wrong, strict=True))
    return f"{size:>12} {count:>13} {'float':>9} {redop:>7}{root} {' '.join(halves)}\n"


def ranks_text(ranks: int, per_node: int, device: str = "NVIDIA H100 80GB HBM3") -> str:
    return "# Using devices\n" + "".join(
        f"#  Rank {rank:>2} Group  0 Pid {1000 + rank} on   host{rank // per_node:03} device {rank % per_node:>2} "
        f"[0000:{16 + rank % per_node:02x}:00] {device}\n"
        for rank in range(ranks)
    )


def log(
    operation: str = "all_reduce", ranks: int = 8, *, alpha: float = 30e-6, bandwidth: float = 300e9,
    at: Sequence[int] | None = None, per_node: int | None = None, named: bool = True, header: str = HEADER, **options,
) -> str:  # fmt: skip
    """The whole output: T = alpha + S * factor / bandwidth, `bandwidth` being the bus bandwidth."""
    factor = FACTORS[operation](ranks)
    rows = "".join(
        row(size, alpha + size * factor / bandwidth, operation, ranks, **options) for size in (at or sizes())
    )
    start = f"# Collective test starting: {operation}_perf\n" if named else ""
    members = ranks_text(ranks, per_node) if per_node else ""
    return f"{start}{members}#\n{header}{rows}# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 100.1\n#\n"
