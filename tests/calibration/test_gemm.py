"""Timings of matrix products: the curve comes back, and impossible ones are refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mapsearch.calibration.gemm import fit_saturation, read_timings
from mapsearch.calibration.parts import gemm_part
from mapsearch.costs.kernels import gemm_s
from mapsearch.errors import InputError
from mapsearch.inventories.profile import Saturation

PEAK = 989e12
SHAPES = list(itertools.product((64, 256, 1024, 8192), (512, 2048, 8192), (1024, 8192)))


def csv_text(curve: Saturation, unit: str = "time_us", scale: float = 1e6, dtype: str = "bf16") -> str:
    lines = [f"m,n,k,dtype,{unit}"]
    for m, n, k in SHAPES:
        lines.append(f"{m},{n},{k},{dtype},{float(gemm_s(m, k, n, peak_flops=PEAK, curve=curve)) * scale:.6g}")
    return "\n".join(lines) + "\n"


def written(tmp_path, text: str, name: str = "gemm.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


CURVE = Saturation(peak=0.8, half_rows=120.0, half_columns=300.0)


@settings(max_examples=25, deadline=None)
@given(peak=st.floats(0.3, 0.98), rows=st.floats(0.0, 500.0), columns=st.floats(0.0, 900.0))
def test_round_trip(tmp_path_factory, peak, rows, columns):
    curve = Saturation(peak=peak, half_rows=rows, half_columns=columns)
    path = written(tmp_path_factory.mktemp("gemm"), csv_text(curve))
    fit = fit_saturation(read_timings(path), peak_flops=PEAK)
    assert fit.curve.peak == pytest.approx(peak, rel=0.01)
    assert fit.curve.half_rows == pytest.approx(rows, rel=0.05, abs=3.0)
    assert fit.curve.half_columns == pytest.approx(columns, rel=0.05, abs=12.0)
    assert fit.worst < 0.01 and fit.rows == len(SHAPES)


@pytest.mark.parametrize(
    ("unit", "scale"), [("seconds", 1.0), ("time_ms", 1e3), ("us", 1e6), ("Time (us)", 1e6), ("duration_ns", 1e9)]
)
def test_units_of_a_column(tmp_path, unit, scale):
    fit = fit_saturation(read_timings(written(tmp_path, csv_text(CURVE, unit, scale))), peak_flops=PEAK)
    assert fit.curve.peak == pytest.approx(0.8, rel=0.01)


@pytest.mark.parametrize("unit", ["tflops", "TFLOP/s", "TFLOPS"])
def test_rates(tmp_path, unit):
    rates = [
        f"{m};{n};{k};{2 * m * n * k / float(gemm_s(m, k, n, peak_flops=PEAK, curve=CURVE)) / 1e12}"
        for m, n, k in SHAPES
    ]
    path = written(tmp_path, f"m;n;k;{unit}\n" + "\n".join(rates))
    assert fit_saturation(read_timings(path), peak_flops=PEAK).curve.half_rows == pytest.approx(120, rel=0.05)


def test_yaml(tmp_path):
    path = written(tmp_path, "gemm:\n- {m: 4096, n: 4096, k: 4096, dtype: bfloat16, time: 200 us}\n", "g.yaml")
    (timing,) = read_timings(path)
    assert timing.dtype == "bf16" and timing.seconds == pytest.approx(200e-6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("m,n,k,time\n8,8,8,3\n", "unit"),
        ("m,n,k,time_us\n8,8,8,-3\n", "positive"),
        ("m,n,k,time_us\n8,8,8,x\n", "not a number"),
        ("m,n,k,time_us\n8,8.5,8,3\n", "whole number"),
        ("m,n,time_us\n8,8,3\n", "missing"),
        ("m,n,k\n8,8,8\n", "no time and no rate"),
        ("m,n,k,time_us\n8,8,8\n", "3 values where the header names 4"),
        ("m,n,k,time_us\n", "no timings"),
        ("m,n,k,time_us,tflops\n4096,4096,4096,200,0.687\n", "mend the unit"),
    ],
)
def test_files_that_are_refused(tmp_path, text, words):
    with pytest.raises(InputError, match=words) as caught:
        read_timings(written(tmp_path, text))
    assert "gemm.csv" in str(caught.value) and "\n" not in str(caught.value)


def test_confused_units_are_seen_by_the_rate(tmp_path):
    fast = read_timings(written(tmp_path, csv_text(CURVE, "time_us", 1e3)))
    with pytest.raises(InputError, match="1,000 times longer would fit"):
        fit_saturation(fast, peak_flops=PEAK)
    slow = read_timings(written(tmp_path, csv_text(CURVE, "time_ms", 1e6)))
    with pytest.raises(InputError, match="us where ms is written"):
        fit_saturation(slow, peak_flops=PEAK)
    with pytest.raises(InputError, match="give the dense peak"):
        fit_saturation(read_timings(written(tmp_path, csv_text(CURVE))), peak_flops=312e12)


def test_a_peak_belongs_to_one_format(tmp_path):
    timings = read_timings(written(tmp_path, csv_text(CURVE) + csv_text(CURVE, dtype="fp8").split("\n", 1)[1]))
    with pytest.raises(InputError, match="bf16 or fp8"):
        fit_saturation(timings, peak_flops=PEAK)
    assert fit_saturation(timings, peak_flops=PEAK, dtype="bfloat16").rows == len(SHAPES)
    with pytest.raises(InputError, match="no timing of fp16"):
        fit_saturation(timings, peak_flops=PEAK, dtype="half")


def test_what_does_not_vary_is_not_told(tmp_path):
    rows = [
        f"4096,4096,{k},{float(gemm_s(4096, k, 4096, peak_flops=PEAK, curve=CURVE)) * 1e6}" for k in (512, 1024, 4096)
    ]
    fit = fit_saturation(read_timings(written(tmp_path, "m,n,k,time_us\n" + "\n".join(rows))), peak_flops=PEAK)
    assert fit.curve.half_rows == 0.0 and any("half_rows is not told" in note for note in fit.notes)
    assert fit.curve.half_columns == pytest.approx(300, rel=0.02)


def test_part_of_a_profile_reads_back(tmp_path):
    timings = read_timings(written(tmp_path, csv_text(CURVE)))
    part = gemm_part(fit_saturation(timings, peak_flops=PEAK, file="gemm.csv"))
    curve = Saturation.model_validate(part["gemm"])
    assert curve.peak == pytest.approx(0.8, rel=0.01) and curve.sources["peak"].startswith("measured: gemm.csv")


@settings(max_examples=100, deadline=2000)
@given(text=st.text(alphabet="mnk,;\n 0123456789.eE-useconds_tflop#\"'\t", max_size=120))
def test_any_text_is_read_or_refused(tmp_path_factory, text):
    path = written(tmp_path_factory.mktemp("any"), "m,n,k,time_us\n8,8,8,3\n" + text)
    try:
        fit_saturation(read_timings(path), peak_flops=PEAK)
    except InputError as refusal:
        assert "\n" not in refusal.problem


def test_numpy_noise_does_not_hide_the_curve(tmp_path):
    rng = np.random.default_rng(1)
    lines = csv_text(CURVE).splitlines()
    noisy = [
        lines[0],
        *(f"{line.rpartition(',')[0]},{float(line.rpartition(',')[2]) * rng.normal(1, 0.03)}" for line in lines[1:]),
    ]
    fit = fit_saturation(read_timings(written(tmp_path, "\n".join(noisy))), peak_flops=PEAK)
    assert fit.curve.peak == pytest.approx(0.8, rel=0.06) and fit.residual < 0.05
