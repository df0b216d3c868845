"""Lines of the host agent's interface (docs/api.md), without I/O: what both clients share."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeAlias

from . import errors

API = 1

Path: TypeAlias = str | bytes
Data: TypeAlias = str | bytes | bytearray | memoryview
Answer: TypeAlias = dict[str, Any]
#: What is called with the answer, or with the error.
Reply: TypeAlias = Callable[[Answer | None, errors.Error | None], None]


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is known of a file, directory or symbolic link."""

    object: int
    version: int
    kind: str
    mode: int
    size: int
    nlink: int
    uid: int
    gid: int
    atime_ns: int
    mtime_ns: int
    ctime_ns: int
    #: Of an ephemeral file, the session that made it.
    made_by: str | None

    @classmethod
    def of(cls, attr: Answer) -> Attributes:
        numbers = {field.name: attr[field.name] for field in fields(cls) if field.name not in ("mode", "made_by")}
        return cls(mode=int(attr["mode"], 8), made_by=attr.get("made_by"), **numbers)


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a directory; `attributes` only if they were asked for."""

    name: Path
    object: int
    kind: str
    attributes: Attributes | None

    @classmethod
    def of(cls, row: Answer) -> Entry:
        attr = row.get("attr")
        return cls(text(row["name"]), row["object"], row["kind"], Attributes.of(attr) if attr else None)


@dataclass(frozen=True, slots=True)
class LeaseFile:
    """A file that goes with a named lease: the lease's own, whose `object` is `lease`, or one that is attached."""

    path: Path
    object: int
    lease: int
    #: The time to live of the lease, and what was left of it by the server's clock, in seconds.
    ttl: float
    left: float
    #: How many files go with the lease, its own among them.
    files: int

    @classmethod
    def of(cls, row: Answer) -> LeaseFile:
        return cls(text(row["path"]), row["object"], row["lease"], row["ttl_ms"] / 1e3, row["left_ms"] / 1e3, row["files"])


@dataclass(frozen=True, slots=True)
class Change:
    """What has become of a watched object: `certain` and `changed` come with its version; `uncertain`; `gone`, which is the last."""

    what: str
    version: int | None


@dataclass(frozen=True, slots=True)
class Locked:
    """A lock as it was granted."""

    hold: int
    token: int
    object: int
    #: Of a semaphore.
    slot: int | None
    #: Of a queue: name, version and contents.
    item: tuple[Path, int, bytes] | None

    @classmethod
    def of(cls, granted: Answer) -> Locked:
        item = granted.get("item")
        taken = (text(item["name"]), int(item["version"]), decoded(item["data"])) if item else None
        return cls(granted["hold"], granted["token"], granted["object"], granted.get("slot"), taken)


def sockets() -> list[str]:
    """Where an agent of this user, or of the system, may be."""
    if named := os.environ.get("CISTERN_AGENT"):
        return [named]
    system = "/var/lib/cistern/agent/control.sock"
    if os.geteuid() == 0:
        return [system]
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    if os.path.isdir(runtime):
        return [f"{runtime}/cistern/agent.sock", system]
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return [f"{state}/cistern/agent/control.sock", system]


def encoded(data: Data) -> str | dict[str, str]:
    """Bytes as they stand in a line: a string where they are UTF-8."""
    if isinstance(data, str):
        data = os.fsencode(data)
    raw = bytes(data)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(raw).decode()}


def decoded(value: str | dict[str, str]) -> bytes:
    """The bytes of a string in a line."""
    return value.encode() if isinstance(value, str) else base64.b64decode(value["b64"])


def text(value: str | dict[str, str]) -> Path:
    """A name of a line: a string where it is UTF-8."""
    return value if isinstance(value, str) else decoded(value)


def octal(mode: int | None) -> str | None:
    return None if mode is None else f"{mode:04o}"


def millis(seconds: float | None) -> int | None:
    return None if seconds is None else max(0, round(seconds * 1000))


class Listener(Protocol):
    """Who is told what becomes of a hold."""

    def told(self, state: str) -> None: ...


class News:
    """What is known of one watch and was not looked at: the newest of each kind."""

    def __init__(self) -> None:
        self._changes: deque[Change] = deque()

    def put(self, change: Change) -> None:
        for older in [older for older in self._changes if older.what == change.what]:
            self._changes.remove(older)
        self._changes.append(change)

    def take(self) -> Change | None:
        return self._changes.popleft() if self._changes else None


class Conversation:
    """The requests of one connection that are not answered, and who is told of its events.

    `write` sends a line whole. Every method may be called by several threads. Replies and listeners are called by whoever calls `feed` or
    `end`, or by `ask` after the end, and must not wait.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._mutex = threading.RLock()
        self._buffer = bytearray()
        self._last = 0
        self._replies: dict[int, Reply] = {}
        self._holds: dict[int, Listener] = {}
        #: States of holds whose lock nobody has listened to yet.
        self._early: dict[int, list[str]] = {}
        self._watches: dict[int, list[Callable[[Change], None]]] = {}
        #: What was told last of a watched object: one more watch begins with it.
        self._known: dict[int, Change] = {}
        self._ended: errors.Error | None = None
        self._process = os.getpid()

    def ask(self, reply: Reply, op: str, fields: Mapping[str, Any]) -> int:
        """Sends a request; its id. What is None in `fields` is left out."""
        if os.getpid() != self._process:
            raise errors.Disconnected("FORKED", "this client was made before a fork: its locks are its process's; make one here")
        with self._mutex:
            self._last += 1
            number = self._last
            if (ended := self._ended) is None:
                self._replies[number] = reply
        if ended is not None:
            reply(None, ended)
            return number
        line = {"id": number, "op": op} | {name: value for name, value in fields.items() if value is not None}
        self._write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        return number

    def give_up(self, number: int) -> None:
        """Nobody waits for this answer any more. A lock that is granted all the same is given back."""

        def unlock(answer: Answer | None, _error: errors.Error | None) -> None:
            if answer and (locked := answer.get("locked")):
                self.ask(lambda *_: None, "unlock", {"hold": locked["hold"]})

        with self._mutex:
            if number not in self._replies:
                return
            self._replies[number] = unlock
        self.ask(lambda *_: None, "cancel", {"request": number})

    def feed(self, data: bytes) -> None:
        """Takes bytes that were read."""
        self._buffer += data
        while (at := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:at])
            del self._buffer[: at + 1]
            self._said(json.loads(line))

    def _said(self, said: Answer) -> None:
        if event := said.get("event"):
            self._event(event)
        elif (number := said.get("id")) is None:
            self.end(errors.of(said["error"]))
        else:
            with self._mutex:
                reply = self._replies.pop(number, None)
            if reply is not None:
                error = said.get("error")
                path = text(error["path"]) if error and "path" in error else None
                reply(said.get("ok"), errors.of(error, path) if error else None)

    def _event(self, event: Answer) -> None:
        if lock := event.get("lock"):
            with self._mutex:
                listener = self._holds.get(lock["hold"])
                if listener is None:
                    self._early.setdefault(lock["hold"], []).append(lock["state"])
            if listener is not None:
                listener.told(lock["state"])
        elif watch := event.get("watch"):
            change = Change(watch["what"], watch.get("version"))
            with self._mutex:
                tell = list(self._watches.get(watch["object"], ()))
                if tell:
                    self._known[watch["object"]] = change
            for put in tell:
                put(change)

    def listen(self, hold: int, listener: Listener) -> None:
        """Tells the listener what becomes of the hold, also what came since it was granted."""
        with self._mutex:
            self._holds[hold] = listener
            early = self._early.pop(hold, [])
            if self._ended is not None:
                early.append("lost")
        for state in early:
            listener.told(state)

    def forget(self, hold: int) -> None:
        with self._mutex:
            self._holds.pop(hold, None)
            self._early.pop(hold, None)

    def watch(self, object: int, put: Callable[[Change], None]) -> bool:
        """Tells `put` what becomes of the object; whether that is to be asked for: nobody watched it before."""
        with self._mutex:
            puts = self._watches.setdefault(object, [])
            puts.append(put)
            known = self._known.get(object)
        if known is not None:
            put(known)
        return len(puts) == 1

    def unwatch(self, object: int, put: Callable[[Change], None]) -> bool:
        """Whether nobody watches the object any more."""
        with self._mutex:
            puts = self._watches.get(object, [])
            if put in puts:
                puts.remove(put)
            if puts or self._watches.pop(object, None) is None:
                return False
            self._known.pop(object, None)
            return True

    def end(self, why: errors.Error) -> None:
        """The connection has ended: nothing will be answered, and nothing is held."""
        with self._mutex:
            if self._ended is not None:
                return
            self._ended = why
            replies, holds, watches = self._replies, self._holds, self._watches
            self._replies, self._holds, self._watches = {}, {}, {}
        for reply in replies.values():
            reply(None, why)
        for listener in holds.values():
            listener.told("lost")
        for puts in watches.values():
            for put in puts:
                put(Change("uncertain", None))

    @property
    def ended(self) -> errors.Error | None:
        return self._ended


class Certainty:
    """Until when a lock is certain, as the agent told last."""

    def __init__(self) -> None:
        self._until: tuple[int, int] | None = None
        self._half_ns = 0

    def learn(self, hold: Answer) -> bool:
        """Takes the answer to `hold`; whether the lock is certain now."""
        until = hold.get("until")
        self._until = (until["clock_monotonic_raw_ns"], until["clock_boottime_ns"]) if until else None
        self._half_ns = hold["lease_ms"] * 500_000
        # Without clocks in common the agent's word is all there is.
        return hold["state"] == "certain" and (until is None or self.left_ns() > 0)

    def left_ns(self) -> int:
        """Time until the lock is uncertain unless the agent renews; 0: not known, or over."""
        if self._until is None:
            return 0
        raw = self._until[0] - time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        boot = self._until[1] - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        return max(0, min(raw, boot))

    def is_fresh(self) -> bool:
        """Whether that is long enough that the agent need not be asked."""
        return self.left_ns() > self._half_ns

    def end(self) -> None:
        self._until = None
