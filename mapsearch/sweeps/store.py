"""Results on disk: one line per item, on the disk before the item counts as done, and never two for one item.

Contents: RESULTS, PARQUET, Store.

A line counts when its line feed is there. `kill -9` and a full disk can leave half a line at the end, never in the
middle: that half is cut off when the folder is opened again, and its item runs again.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from mapsearch.errors import InputError, UsageError
from mapsearch.sweeps.record import SweepItem

RESULTS = "results.jsonl"
PARQUET = "results.parquet"
LOCK = "lock"


class Store:
    """The folder of one sweep, held by one process at a time; the operating system lets go of it when that dies.

    Raises UsageError when the folder cannot be used, InputError when its results cannot be read.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.records: dict[str, SweepItem] = {}
        """The items with a result, by key."""
        self.remarks: list[str] = []
        self._file = -1
        self._lock = -1

    @property
    def path(self) -> Path:
        """The file of results."""
        return self.folder / RESULTS

    def __enter__(self) -> Self:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            self._hold()
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            self._sync_folder()
            self._read()
        except BaseException as problem:
            self._close()
            if isinstance(problem, OSError):
                reason = problem.strerror or problem
                raise UsageError(f"cannot be used: {reason}", file=str(self.folder), field="--output") from None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def append(self, record: SweepItem) -> None:
        """Add one result; when this returns it is on the disk. Raises UsageError when the disk refuses it."""
        if record.key in self.records:
            raise ValueError(f"item {record.key} has a result already")
        end = os.fstat(self._file).st_size
        try:
            _write_all(self._file, record.to_line().encode())
            os.fsync(self._file)
        except OSError as problem:
            os.ftruncate(self._file, end)
            raise UsageError(f"cannot be written: {problem.strerror}", file=str(self.path)) from None
        self.records[record.key] = record

    def forget(self, keys: set[str]) -> None:
        """Drop the results of these items, in one step: a kill in between leaves the old file or the new one."""
        if not keys & set(self.records):
            return
        self.records = {key: record for key, record in self.records.items() if key not in keys}
        new = self.folder / f"{RESULTS}.new"
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        _write_all(file, "".join(record.to_line() for record in self.records.values()).encode())
        os.fsync(file)
        os.replace(new, self.path)
        self._sync_folder()
        os.close(self._file)
        self._file = file

    def _hold(self) -> None:
        import fcntl

        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                "another sweep is writing here; wait for it, stop it, or give another folder",
                file=str(self.folder), field="--output",
            ) from None  # fmt: skip

    def _read(self) -> None:
        """The results so far; half a line at the end is cut off."""
        with open(self.path, "rb") as file:
            data = file.read()
        whole = data.rfind(b"\n") + 1
        lines = data[:whole].split(b"\n")[:-1]
        for number, line in enumerate(lines, start=1):
            record = self._record(line, number, last=number == len(lines) and whole == len(data))
            if record is None:
                whole -= len(line) + 1
            elif record.key in self.records:
                raise InputError(f"line {number} has the item {record.key[:12]}... again", file=str(self.path))
            else:
                self.records[record.key] = record
        if whole < len(data):
            os.ftruncate(self._file, whole)
            os.fsync(self._file)
            self.remarks.append(f"{self.path}: half a line at the end ({len(data) - whole:,} bytes) is cut off")

    def _record(self, line: bytes, number: int, *, last: bool) -> SweepItem | None:
        """One line; None for a last line of rubbish, which a machine that lost its power can leave."""
        try:
            return SweepItem.model_validate_json(line)
        except ValidationError as problem:
            if last and problem.errors()[0]["type"] == "json_invalid":
                return None
            raise InputError(
                f"line {number} is no result of a sweep ({problem.errors()[0]['msg']}); give another folder",
                file=str(self.path),
            ) from None

    def _sync_folder(self) -> None:
        """A file's name is on the disk only when its folder is."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _close(self) -> None:
        for file in (self._file, self._lock):
            if file >= 0:
                os.close(file)
        self._file = self._lock = -1


def _write_all(file: int, data: bytes) -> None:
    """One write, and the rest of it where the system took only a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
