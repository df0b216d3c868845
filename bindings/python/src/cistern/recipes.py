"""What recipes ask of the agent, step by step, and what they make of the answers: what both clients do, once (docs/recipes.md).

Each function yields requests, and is sent their values, or thrown their errors; its value is what it returns.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from . import errors, requests
from .wire import Data, Entry, Path, encoded, text

T = TypeVar("T")
#: What is on record of a period.
Record: TypeAlias = Mapping[str, Any]
Steps: TypeAlias = Generator[requests.Request[Any] | float, Any, T]


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads: what it says of itself, its fencing token, and the file in which it says so, which goes with it."""

    value: bytes
    token: int
    object: int


def under(path: Path, name: Path) -> Path:
    """The path of a name in a directory."""
    if isinstance(path, str) and isinstance(name, str):
        return f"{path}/{name}"
    return os.fsencode(path) + b"/" + os.fsencode(name)


def _made(directory: Path) -> Steps[None]:
    try:
        yield requests.mkdir(directory, None, None)
    except errors.Exists:
        pass


def lock_of_election(directory: Path) -> Steps[None]:
    """Makes the file whose lock makes the leader."""
    try:
        yield requests.create(under(directory, "lock"), False, None, None)
    except errors.NotFound:
        yield from _made(directory)
        yield requests.create(under(directory, "lock"), False, None, None)


def name_leader(directory: Path, hold: int, token: int, value: Data) -> Steps[int]:
    """Makes the file that names the leader, under its lock; its object."""
    path = under(directory, "leader")
    while True:
        try:
            # That of the leader before is there where its session has not ended, or is just ending.
            yield requests.remove(path, True, hold)
        except errors.NotFound:
            pass
        try:
            contents = str(token).encode() + b" " + (value.encode() if isinstance(value, str) else bytes(value))
            return int((yield requests.join(path, contents, None, hold)))
        except errors.Exists:
            # A program of the same agent has just ended, and its file with it.
            yield 0.01


def leader(directory: Path) -> Steps[Leader | None]:
    try:
        contents, attributes = yield requests.read_attributes(under(directory, "leader"))
    except errors.NotFound:
        return None
    token, _, value = contents.partition(b" ")
    return Leader(value, int(token), attributes.object)


def _number(path: Path) -> Steps[tuple[int, int]]:
    """A counter's number, and the version that it is of; 0: there is no file."""
    try:
        data, version = yield requests.read_version(path)
    except errors.NotFound:
        return 0, 0
    try:
        return int(data or b"0"), version
    except ValueError:
        raise errors.Error("EINVAL", f"{path!r}: its contents are no number", path=path) from None


def _write_number(path: Path, number: int, version: int) -> Steps[bool]:
    """Writes a number in the place of what was read; whether that was still there."""
    try:
        yield requests.write(path, f"{number}\n", None, version, None)
    except errors.VersionChanged:
        return False
    except errors.NotFound:
        if version == 0:
            raise
        return False
    return True


def count(path: Path) -> Steps[int]:
    number, _ = yield from _number(path)
    return number


def add(path: Path, amount: int) -> Steps[int]:
    while True:
        number, version = yield from _number(path)
        if (yield from _write_number(path, number + amount, version)):
            return number + amount


def compare_and_set(path: Path, old: int, new: int) -> Steps[bool]:
    while True:
        number, version = yield from _number(path)
        if number != old:
            return False
        if (yield from _write_number(path, new, version)):
            return True


def put(directory: Path, data: Data, name: str | None) -> Steps[str]:
    """Puts an item into a queue; its name."""
    name = name or f"{socket.gethostname().lstrip('.')}-{uuid.uuid4().hex}"
    path = under(directory, name)
    try:
        yield requests.write(path, data, None, 0, None)
    except errors.NotFound:
        yield from _made(directory)
        yield requests.write(path, data, None, 0, None)
    return name


def remove_item(directory: Path, name: Path, version: int, hold: int) -> requests.Request[list[int]]:
    path = under(directory, name)
    return requests.batch([{"op": "unlink", "path": path, "force": True}], {path: version}, hold)


def members(directory: Path) -> Steps[dict[Path, bytes]]:
    """The ephemeral files of a directory, with their contents."""
    entries: list[Entry] = yield requests.listing(directory, True)
    found: dict[Path, bytes] = {}
    for entry in entries:
        if entry.attributes is not None and entry.attributes.made_by is not None:
            try:
                found[entry.name] = yield requests.read(under(directory, entry.name))
            except errors.NotFound:
                pass  # It has just gone.
    return found


# Once in each period.


def _now() -> int:
    return int(time.time())


def begin_period(path: Path, period: str, rerun_lost: bool, hold: int, token: int) -> Steps[Record | None]:
    """Records under the lock that a period is begun; None: it was begun before."""
    data = yield requests.read(path)
    if data:
        try:
            before: Record = json.loads(data)
            named = str(before["period"])
        except (ValueError, KeyError, TypeError):
            raise errors.Error("EEXIST", f"{path!r}: it is not a record of periods", path=path) from None
        if named > period:
            raise errors.Error("OLDER_PERIOD", f"{path!r}: {period} is older than {named}, which is on record", exit=3, path=path)
        if named == period and (not rerun_lost or "ended" in before):
            return None
    record = {"period": period, "host": socket.gethostname(), "token": token, "begun": _now()}
    yield from _write_record(path, record, hold)
    return record


def _write_record(path: Path, record: Record, hold: int) -> Steps[None]:
    contents = json.dumps(record, separators=(",", ":")) + "\n"
    try:
        yield requests.write(path, contents, None, None, hold)
    except errors.OutcomeUnknown:
        # Whether it was written, its file says; who holds the lock is the only one who writes.
        if (yield requests.read(path)).decode() != contents:
            raise


def end_period(path: Path, record: Record, status: int, hold: int) -> Steps[None]:
    yield from _write_record(path, {**record, "ended": _now(), "status": status}, hold)
