"""Running the command line in-process, with the solver replaced where a test is about the command line only."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import answers
import pytest


@dataclass
class Result:
    code: int
    out: str
    err: str


@dataclass
class FakeApi:
    """Records the calls, and gives the answer or raises the error it was told to."""

    answer: Any = None
    report: Any = None
    error: BaseException | None = None
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = None  # type: ignore[assignment]

    def solve(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((args, kwargs))
        if self.error:
            raise self.error
        return self.answer

    def check(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((args, kwargs))
        if self.error:
            raise self.error
        return self.report


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    fake = FakeApi(answer=answers.optimal(), report=answers.report(), calls=[])
    module = ModuleType("mapsearch.api")
    module.solve, module.check = fake.solve, fake.check  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mapsearch.api", module)
    return fake


@pytest.fixture
def mapsearch(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    from mapsearch.cli.main import main

    def run(*arguments: object) -> Result:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def run_file(tmp_path: Any) -> Any:
    path = tmp_path / "run.yaml"
    path.write_text(
        "name: small\nsequence_length: 4096\nglobal_batch: 64\n"
        "constraints: {fix: {tp: 4}, allow: {ep: [8, 16]}, inside: {board: [tp]}}\n"
    )
    return path
