"""Ctrl-C sent to the real program: exit 130, a whole answer on stdout, no traceback."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import sys
import mapsearch.cli.solve
from mapsearch.cli.main import main
print("ready", file=sys.stderr, flush=True)
sys.exit(main(["solve", *sys.argv[1:], "--format", "json"]))
"""


@pytest.mark.parametrize("delay_s", [0.2, 1.0, 2.5])
def test_the_answer_so_far(delay_s):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--topology", "asic"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr.readline() == "ready\n"
    time.sleep(delay_s)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    answer = json.loads(out)
    assert answer["interrupted"]
    assert answer["status"] in ("feasible", "unknown")
    assert bool(answer["mappings"]) == (answer["status"] == "feasible")
    if answer["mappings"]:
        assert 0.0 <= answer["gap"] < 1.0
