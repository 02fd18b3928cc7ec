"""Logs as people keep them: one oddity per test, all of them written here."""

from __future__ import annotations

import time

import nccl_text
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapsearch.calibration.columns import bus_factor
from mapsearch.calibration.nccl import CollectiveLog, read_log, read_logs, read_text_logs
from mapsearch.errors import InputError

PIECES = ["0", "-1", "nan", "inf", "1e999", "9" * 40, "N/A", "\x1b[", "#", "\n", "²", "float", "sum"]


def one(text: str, file: str = "log.txt", **options) -> CollectiveLog:
    logs, refused = read_text_logs(text, file=file, **options)
    assert len(logs) == 1 and not refused
    return logs[0]


def problem(text: str, **options) -> str:
    with pytest.raises(InputError) as caught:
        read_text_logs(text, file="log.txt", **options)
    assert str(caught.value).startswith("log.txt: ") and "\n" not in str(caught.value)
    return caught.value.problem


def test_factors_of_the_sheet():
    """F4.1."""
    assert [bus_factor(name, 8) for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")] == [
        1.75, 0.875, 0.875, 0.875,
    ]  # fmt: skip
    assert bus_factor("broadcast", 8) == bus_factor("send_receive", 8) == 1.0


@pytest.mark.parametrize(
    ("program", "name"),
    [("all_reduce", "all_reduce"), ("all_gather", "all_gather"), ("reduce_scatter", "reduce_scatter"),
     ("alltoall", "all_to_all"), ("sendrecv", "send_receive"), ("broadcast", "broadcast")],
)  # fmt: skip
def test_a_whole_log(program, name):
    log = one(nccl_text.log(program, 8, per_node=8))
    assert (log.operation, log.ranks, log.ranks_per_node, log.dtype) == (name, 8, 8, "float")
    assert len(log.rows) == 21 and log.devices == ("NVIDIA H100 80GB HBM3",)
    assert log.rows[0].size_bytes == 1024 and log.rows[0].out_of_place.time_s == pytest.approx(30e-6, rel=0.02)
    assert (log.rows[0].in_place is None) == (name == "all_to_all")


def test_size_of_an_all_gather_is_the_whole_array():
    """TRAP of F4.1: count is one rank's share, size the total."""
    row = one(nccl_text.log("all_gather", 16)).rows[0]
    assert row.size_bytes == row.count * 4 * 16


@pytest.mark.parametrize("ranks", [2, 3, 8, 16, 72, 192])
@pytest.mark.parametrize("program", ["all_gather", "all_reduce", "reduce_scatter"])
def test_operation_and_ranks_by_the_columns(program, ranks):
    at = [size * 9 * 2**6 * 4 for size in nccl_text.sizes(12, 22)]
    log = one(nccl_text.log(program, ranks, named=False, at=at, bandwidth=300e9))
    assert (log.operation, log.ranks) == (program, ranks)
    assert any("does not name its operation" in note for note in log.notes)


def test_only_the_in_place_half_unverified_is_an_all_to_all():
    assert one(nccl_text.log("alltoall", 8, named=False, wrong=("0", "N/A"))).operation == "all_to_all"


def test_nothing_verified_leaves_two_operations():
    text = nccl_text.log("all_gather", 8, named=False, wrong=("N/A", "N/A"))
    assert "all-gather or all-to-all; give --operation" in problem(text)
    assert one(text, operation="all-gather").operation == "all_gather"
    assert one(f"NCCL INFO AllGather: 16 ranks\n{text}").operation == "all_gather"
    assert one(text, file="runs/h100-alltoall.log").operation == "all_to_all"


def test_unknown_operation():
    with pytest.raises(InputError, match="did you mean 'all_gather'"):
        read_text_logs(nccl_text.log(), file="x", operation="all-gater")


def test_old_columns():
    log = one(nccl_text.log(old=True, named=False, header=nccl_text.OLD_HEADER, wrong=("2e-07", "5e-07")))
    assert (log.operation, log.ranks, log.rows[0].root, len(log.rows)) == ("all_reduce", 8, None, 21)
    without_header = "".join(nccl_text.row(2**p, 1e-5 + 2**p / 1e11, old=True) for p in range(20, 30))
    assert one(without_header).rows[0].out_of_place.time_s == pytest.approx(1e-5 + 2**20 / 1e11, rel=1e-3)


@pytest.mark.parametrize(
    "prefix", ["[1,0]<stdout>:", "   [1,12]<stderr>: ", "0: ", "2024-05-01T10:00:00Z ", "\x1b[32m", "worker-0 | "]
)
def test_prefixes_of_launchers(prefix):
    text = "".join(f"{prefix}{line}\x1b[0m\n" for line in nccl_text.log(per_node=8).splitlines())
    log = one(text)
    assert (log.operation, log.ranks, log.ranks_per_node, len(log.rows)) == ("all_reduce", 8, 8, 21)


def test_noise_around_and_between_rows():
    lines = nccl_text.log().splitlines(keepends=True)
    noise = "[node:123] PMIX ERROR: ERROR in file x.c at line 168\n"
    assert len(one(noise.join(lines)).rows) == 21


def test_carriage_returns_tabs_and_utf16(tmp_path):
    text = nccl_text.log(per_node=8).replace("\n", "\r\n").replace("   ", "\t")
    path = tmp_path / "log.txt"
    path.write_bytes(text.encode("utf-16"))
    assert len(read_log(path).rows) == 21
    path.write_bytes(text.encode() + b"\xff\xfe\x00")
    assert len(read_log(path).rows) == 21


def test_zero_rows_are_left_out():
    zero = (
        "           0             0     float   sum    -1   0.30    0.00    0.00       0     0.26    0.00    0.00 0\n"
    )
    log = one(nccl_text.log(header=nccl_text.HEADER + 5 * zero))
    assert len(log.rows) == 21 and "5 rows of size 0 left out" in log.notes
    assert "only 5 rows of size 0" in problem(nccl_text.HEADER + 5 * zero)


def test_placeholders_are_refused():
    row = "   268435456       4194304     float    none      -1 XXXXX XXX.XX XXX.XX N/A XXXXXX  XXX.XX  XXX.XX  0\n"
    assert "placeholders such as XXXXX" in problem(nccl_text.HEADER + 3 * row)
    assert any("placeholders" in note for note in one(nccl_text.log(header=nccl_text.HEADER + row)).notes)


def test_one_rank_is_refused():
    text = nccl_text.log("alltoall", 1, per_node=1, bandwidth=1e12)
    assert "one rank" in problem(text) and "MPI=1" in problem(text)


def test_two_ranks_on_one_device_are_refused():
    text = nccl_text.log("reduce_scatter", 2, per_node=2).replace("[0000:11:00]", "[0000:10:00]")
    assert "2 ranks share one device" in problem(text)


@pytest.mark.parametrize("mark", ["...", "# Truncated  smaller message sizes", "# <smaller message sizes truncated>"])
def test_elided_rows(mark):
    log = one(nccl_text.log(header=f"{nccl_text.HEADER}{mark}\n"))
    assert any("cut out" in note for note in log.notes) and len(log.rows) == 21


def test_elided_list_of_ranks():
    lines = nccl_text.log("alltoall", 64, per_node=4).splitlines()
    kept = [line for line in lines if "Rank" not in line or any(f"Rank {n:>2} " in line for n in (0, 1, 62, 63))]
    log = one("\n".join(kept))
    assert (log.ranks, log.ranks_per_node) == (64, 4)
    assert any("4 ranks per node" in note for note in log.notes)


def test_a_head_cut_off():
    """Only the last line of the list of ranks is left."""
    text = nccl_text.log(ranks=72, per_node=4)
    assert one(text[text.index("#  Rank 71") :]).ranks == 72


def test_a_list_that_ends_too_early_gives_way_to_the_bus_factor():
    text = nccl_text.log(ranks=16, per_node=8)
    start, end = text.index("#  Rank  2"), text.index("#\n")
    log = one(text[:start] + text[end:])
    assert log.ranks == 16 and any("2 ranks are listed" in note for note in log.notes)


def test_rooted_collectives_and_a_second_test_in_the_file():
    text = nccl_text.log("broadcast", 4) + "\n======== next\n" + nccl_text.log("reduce_scatter", 4)
    logs, refused = read_text_logs(text, file="log.txt")
    assert [log.operation for log in logs] == ["broadcast", "reduce_scatter"] and not refused
    assert logs[0].rows[0].root == 0


def test_tests_of_a_file_that_cannot_be_used_do_not_spoil_the_others(tmp_path):
    path = tmp_path / "both.txt"
    path.write_text(nccl_text.log("alltoall", 1, per_node=1) + nccl_text.log("all_gather", 8))
    logs, refused = read_logs(path)
    assert [log.operation for log in logs] == ["all_gather"] and "one rank" in refused[0].problem
    path.write_text(nccl_text.log("all_reduce") + nccl_text.log("all_gather", 8))
    with pytest.raises(InputError, match="2 tests"):
        read_log(path)


def test_wrong_results_are_left_out():
    bad = nccl_text.row(2**20, 1e-3, wrong=("17", "17"))
    log = one(nccl_text.log(header=nccl_text.HEADER + bad))
    assert len(log.rows) == 21 and "1 rows with wrong results (#wrong) left out" in log.notes
    assert "wrong results" in problem(nccl_text.HEADER + bad)


def test_a_contradicting_bus_column_is_reported_with_its_factor():
    log = one(nccl_text.log(per_node=8, factor=0.875))
    (note,) = [note for note in log.notes if "busbw" in note]
    assert "0.875 times algbw" in note and "has 1.75" in note and "all-gather" in note
    (note,) = [note for note in one(nccl_text.log(ranks=16, per_node=8, factor=1.75)).notes if "busbw" in note]
    assert "the factor of 8 ranks" in note


def test_times_in_milliseconds_are_told_by_algbw():
    log = one(nccl_text.log(unit=1e-3, at=nccl_text.sizes(25, 33)))
    assert log.rows[-1].out_of_place.time_s == pytest.approx(30e-6 + 2**33 * 1.75 / 300e9, rel=0.01)
    assert any("milliseconds" in note for note in log.notes)


def test_columns_that_are_not_size_over_time():
    lines = nccl_text.log(at=nccl_text.sizes(25, 30)).splitlines()
    rows = [at for at, line in enumerate(lines) if line.split()[0].isdigit()]

    def slower(at: int) -> str:
        words = lines[at].split()
        return " ".join([*words[:5], str(float(words[5]) * 3.3), *words[6:9], str(float(words[9]) * 3.3), *words[10:]])

    one_bad = [slower(at) if at == rows[2] else line for at, line in enumerate(lines)]
    log = one("\n".join(one_bad))
    assert len(log.rows) == 5 and any("1 row whose algbw is not size / time" in note for note in log.notes)
    all_bad = [slower(at) if at in rows else line for at, line in enumerate(lines)]
    assert "algbw is not size / time but 3.3 times as much" in problem("\n".join(all_bad))


def test_torn_and_mistyped_rows():
    lines = nccl_text.log().splitlines()
    lines[10] = lines[10].replace(lines[10].split()[5], "9.99", 1)
    log = one("\n".join(lines)[: -(len(lines[-1]) + len(lines[-2]) + len(lines[-3]) + len(lines[-4]) // 2)])
    assert 19 <= len(log.rows) <= 21


def test_counts_that_do_not_fit_are_named():
    text = nccl_text.log(at=[2**32, 2**33]).replace("1073741824 ", "107374182 ")
    assert any("1 of 2 rows" in note for note in one(text, ranks=8).notes)


@pytest.mark.parametrize("text", ["", "   \n", "hello\nworld\n", nccl_text.HEADER, "8 2 float sum\n" * 3])
def test_no_rows(text, tmp_path):
    path = tmp_path / "log.txt"
    path.write_text(text)
    with pytest.raises(InputError):
        read_logs(path)


@settings(max_examples=150, deadline=2000)
@given(data=st.data())
def test_mutated_logs_are_read_or_refused_in_a_sentence(data):
    """Cut, doubled, swapped and replaced pieces: never a traceback, never slow."""
    program = data.draw(st.sampled_from(list(nccl_text.FACTORS)))
    ranks = data.draw(st.sampled_from([1, 2, 8, 16]))
    text = nccl_text.log(program, ranks, per_node=min(ranks, 8), old=data.draw(st.booleans()))
    for _ in range(data.draw(st.integers(1, 8))):
        at, end = sorted(data.draw(st.integers(0, len(text))) for _ in range(2))
        piece = data.draw(
            st.one_of(
                st.text(max_size=8),
                st.sampled_from(
                    ["0", "-1", "nan", "inf", "1e999", "9" * 40, "N/A", "\x1b[", "#", "\n", "²", "float", "sum"]
                ),
            )
        )
        text = data.draw(
            st.sampled_from(
                [text[:at] + piece + text[at:], text[:at] + piece + text[min(end, at + 30) :], text[at:end]]
            )
        )
    began = time.perf_counter()
    try:
        logs, _ = read_text_logs(text, file="log.txt")
        assert all(row.halves and all(half.time_s > 0 for half in row.halves) for log in logs for row in log.rows)
    except InputError as refusal:
        assert "\n" not in refusal.problem
    assert time.perf_counter() - began < 2.0
