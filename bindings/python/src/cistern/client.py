"""The client for threads."""

from __future__ import annotations

import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from . import errors, recipes, requests
from .wire import API, Answer, Attributes, Certainty, Change, Conversation, Data, Entry, LeaseFile, Locked, News, Path, millis, sockets

T = TypeVar("T")

_log = logging.getLogger("cistern")


def _connect(named: str | None) -> socket.socket:
    tried = [named] if named else sockets()
    failed: OSError | None = None
    for path in tried:
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            stream.connect(path)
            return stream
        except OSError as error:
            stream.close()
            failed = error
    message = f"no agent answers at {' or '.join(tried)}: {failed}; is `cistern agent run` running?"
    raise errors.Disconnected("NO_AGENT", message, exit=69)


class Client:
    """A connection to the agent of this host, for any number of threads. Locks, watches and memberships end with it.

    `socket` is the agent's, else `CISTERN_AGENT`, else the first that answers of those of this user and of the system. `timeout`, in seconds, is
    how long each request may take, locks excepted; without it the agent gives its server 15 s.
    """

    def __init__(self, socket: str | None = None, *, timeout: float | None = None) -> None:
        self._stream = _connect(socket)
        self._sending = threading.Lock()
        self._timeout = timeout
        self._talk = Conversation(self._send)
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="cistern-read", daemon=True).start()
        threading.Thread(target=self._dispatch, name="cistern-events", daemon=True).start()
        try:
            #: What the agent says that it is.
            self.agent: Answer = self.call("hello", api=API)["hello"]
        except BaseException:
            self.close()
            raise

    # The connection.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, and what belongs to it."""
        self._talk.end(errors.Disconnected("CLOSED", "the client is closed", exit=69))
        try:
            self._stream.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # The agent has ended it before.

    def _send(self, line: bytes) -> None:
        with self._sending:
            try:
                self._stream.sendall(line)
            except OSError:
                pass  # The reader finds the end, and why, if the agent has said so.

    def _read(self) -> None:
        why = "the agent has ended the connection"
        try:
            while data := self._stream.recv(1 << 16):
                self._talk.feed(data)
        except Exception as error:
            why = f"the agent's lines cannot be read: {error}"
        self._talk.end(errors.Disconnected("NO_AGENT", why, exit=69))
        self._stream.close()
        self._calls.put(None)

    def _dispatch(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception:
                _log.exception("a callback failed")

    def call(self, op: str, **fields: Any) -> Answer:
        """Any request of the interface (docs/api.md), and the value of its answer's `ok`."""
        return self._do((op, fields, lambda answer: answer))

    def _do(self, request: requests.Request[T], *, waits: bool = False) -> T:
        op, fields, value = request
        done: Future[Answer] = Future()

        def reply(answer: Answer | None, error: errors.Error | None) -> None:
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(answer or {})

        if not waits and self._timeout is not None:
            fields = {"deadline_ms": millis(self._timeout)} | fields
        number = self._talk.ask(reply, op, fields)
        try:
            return value(done.result())
        except errors.Error:
            raise
        except BaseException:
            # Ctrl-C while waiting, say.
            self._talk.give_up(number)
            raise

    # Files.

    def stat(self, path: Path, *, follow: bool = True) -> Attributes:
        return self._do(requests.stat(path, follow))

    def exists(self, path: Path) -> bool:
        try:
            self.stat(path)
        except errors.NotFound:
            return False
        return True

    def listdir(self, path: Path, *, detail: bool = False) -> list[Entry]:
        return self._do(requests.listing(path, detail))

    def read(self, path: Path) -> bytes:
        return self._do(requests.read(path))

    def read_version(self, path: Path) -> tuple[bytes, int]:
        """The contents, and the version that they are of, for `write(if_version=...)`."""
        return self._do(requests.read_version(path))

    def read_link(self, path: Path) -> Path:
        return self._do(requests.read_link(path))

    def write(
        self, path: Path, data: Data, *, mode: int | None = None, if_version: int | None = None, guard: Lock | None = None
    ) -> Attributes:
        """Replaces the contents of a file (at most 1 MiB), or makes it. `if_version`: only if it has that; 0: only if it is not there.

        `guard`, here and below: only while that lock is held under its token; otherwise `StaleGuard`, and nothing is changed.
        """
        return self._do(requests.write(path, data, mode, if_version, _hold(guard)))

    def create(self, path: Path, *, exclusive: bool = False, mode: int | None = None, guard: Lock | None = None) -> Attributes:
        return self._do(requests.create(path, exclusive, mode, _hold(guard)))

    def mkdir(self, path: Path, *, mode: int | None = None, guard: Lock | None = None) -> Attributes:
        return self._do(requests.mkdir(path, mode, _hold(guard)))

    def symlink(self, target: Path, path: Path, *, guard: Lock | None = None) -> Attributes:
        return self._do(requests.symlink(target, path, _hold(guard)))

    def link(self, existing: Path, path: Path, *, guard: Lock | None = None) -> Attributes:
        return self._do(requests.link(existing, path, _hold(guard)))

    def remove(self, path: Path, *, force: bool = False, guard: Lock | None = None) -> None:
        """Removes a file; `force`: even if somebody else has locked it."""
        self._do(requests.remove(path, force, _hold(guard)))

    def rmdir(self, path: Path, *, guard: Lock | None = None) -> None:
        self._do(requests.rmdir(path, _hold(guard)))

    def rename(self, source: Path, target: Path, *, rule: str = "replace", force: bool = False, guard: Lock | None = None) -> None:
        """`rule`: `replace`, `no_replace` or `exchange`."""
        self._do(requests.rename(source, target, rule, force, _hold(guard)))

    def set_attributes(
        self,
        path: Path,
        *,
        mode: int | None = None,
        size: int | None = None,
        mtime_ns: int | None = None,
        guard: Lock | None = None,
    ) -> Attributes:
        return self._do(requests.set_attributes(path, mode, size, mtime_ns, _hold(guard)))

    def get_xattr(self, path: Path, name: Path) -> bytes:
        return self._do(requests.get_xattr(path, name))

    def list_xattr(self, path: Path) -> list[Path]:
        return self._do(requests.list_xattr(path))

    def set_xattr(self, path: Path, name: Path, value: Data, *, rule: str = "any", guard: Lock | None = None) -> Attributes:
        return self._do(requests.set_xattr(path, name, value, rule, _hold(guard)))

    def remove_xattr(self, path: Path, name: Path, *, guard: Lock | None = None) -> Attributes:
        return self._do(requests.remove_xattr(path, name, _hold(guard)))

    def batch(
        self, items: Sequence[Mapping[str, Any]], *, if_versions: Mapping[Path, int] | None = None, guard: Lock | None = None
    ) -> list[int]:
        """Makes all changes or none; the version of what each was about, 0 if it is gone. Items are those of docs/api.md."""
        return self._do(requests.batch(items, if_versions, _hold(guard)))

    # Locks, watches, membership.

    def lock(self, path: Path, *, shared: bool = False, slots: int | None = None, wait: float | None = None, create: bool = False) -> Lock:
        """Takes the lock on a file, and waits for it for `wait` seconds; None: as long as it takes; 0: not at all.

        `slots`: the path is that of a semaphore with so many slots, of which one is taken. `create` makes the file if it is not there. The lock is given back at the end of its `with` block, or by `unlock`.
        """
        if create:
            self.create(path)
        granted = self._do(requests.lock(path, shared, wait, slots), waits=True)
        return Lock(self, path, granted)

    def locks(self, path: Path | None = None) -> list[Answer]:
        """Holders and waiters, of one file or of all."""
        return self._do(requests.locks(path))

    def watch(self, path: Path) -> Watch:
        """Watches what the path names now: a file for its changes, a directory for its names."""
        return Watch(self, self.stat(path).object)

    def join(self, path: Path, data: Data = b"", *, mode: int | None = None) -> Member:
        """Makes an ephemeral file, which goes with this client, or with its host."""
        return Member(self, path, self._do(requests.join(path, data, mode, None)))

    # Recipes (docs/recipes.md).

    def _steps(self, steps: recipes.Steps[T]) -> T:
        value: object = None
        failed: errors.Error | None = None
        while True:
            try:
                step = steps.send(value) if failed is None else steps.throw(failed)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            value, failed = None, None
            try:
                if isinstance(step, float):
                    time.sleep(step)
                else:
                    value = self._do(step)
            except errors.Error as error:
                failed = error

    def campaign(self, directory: Path, value: Data = b"", *, wait: float | None = None) -> Leadership:
        """Leads an election as soon as nobody before it does; `value` is what others are told of the leader."""
        lock = recipes.under(directory, "lock")
        try:
            granted = self._do(requests.lock(lock, False, wait, None), waits=True)
        except errors.NotFound:
            self._steps(recipes.lock_of_election(directory))
            granted = self._do(requests.lock(lock, False, wait, None), waits=True)
        leadership = Leadership(self, lock, granted)
        try:
            leadership.named = self._steps(recipes.name_leader(directory, granted.hold, granted.token, value))
        except BaseException:
            leadership.unlock()
            raise
        return leadership

    def leader(self, directory: Path) -> recipes.Leader | None:
        """Who leads, as far as the server knows; None: nobody. To follow it, watch the directory and the leader's file."""
        return self._steps(recipes.leader(directory))

    def put(self, directory: Path, data: Data, *, name: str | None = None) -> str:
        """Puts an item at the end of a queue; its name. With a `name`, `VersionChanged` if an item of that name is in it."""
        return self._steps(recipes.put(directory, data, name))

    def take(self, directory: Path, *, wait: float | None = None) -> Item:
        """Takes the first item of a queue that nobody works on, and waits for one; `wait` as for `lock`."""
        granted = self._do(requests.take(directory, wait), waits=True)
        return Item(self, directory, granted)

    def count(self, path: Path) -> int:
        """A counter's number; 0 if there is no file."""
        return self._steps(recipes.count(path))

    def add(self, path: Path, amount: int = 1) -> int:
        """Adds to a counter, once or (`OutcomeUnknown`) perhaps not at all; the new number."""
        return self._steps(recipes.add(path, amount))

    def compare_and_set(self, path: Path, old: int, new: int) -> bool:
        """Sets a counter to `new` if it is `old`; whether it was."""
        return self._steps(recipes.compare_and_set(path, old, new))

    def enter(self, directory: Path, parties: int, *, wait: float | None = None) -> Entered:
        """Waits until so many are at a barrier."""
        hold, number = self._do(requests.enter(directory, parties, wait), waits=True)
        return Entered(self, hold, number)

    def once(self, path: Path, period: str, *, wait: float | None = None, rerun_lost: bool = False) -> Run | None:
        """The right to do something in this period; None: somebody has or had it. Names of later periods are larger."""
        lock = self.lock(path, wait=wait, create=True)
        try:
            record = self._steps(recipes.begin_period(path, period, rerun_lost, lock.hold, lock.token))
        except BaseException:
            lock.unlock()
            raise
        if record is None:
            lock.unlock()
            return None
        return Run(lock, record)

    def members(self, directory: Path) -> dict[Path, bytes]:
        """Who has joined in a directory, and what each says of itself."""
        return self._steps(recipes.members(directory))

    # Named leases.

    def create_lease(
        self, path: Path, ttl: float, *, data: Data | None = None, secret: str | None = None, mode: int | None = None
    ) -> NamedLease:
        """Makes a named lease of `ttl` seconds: a file that goes when nobody keeps it, with all that is attached. It outlives this client.

        `secret` is one that the agent has given before; without it there is a new one, which the lease has.
        """
        return NamedLease(self, path, self._do(requests.create_lease(path, ttl, secret, data, mode)))

    def named_lease(self, path: Path, secret: str) -> NamedLease:
        """A named lease that is there, for whoever has its secret."""
        return NamedLease(self, path, secret)

    def leases(self, lease: Path | None = None) -> list[LeaseFile]:
        """All named leases, or the files that go with one."""
        return self._do(requests.leases(lease))

    # Agent and server.

    def ping(self) -> float:
        """Seconds to the server and back."""
        return float(self.call("ping")["pong"]["round_trip_us"]) / 1e6

    def lease(self) -> Answer:
        return dict(self.call("lease")["lease"])

    def server(self) -> Answer:
        return dict(self.call("server")["server"])


def _hold(guard: Lock | None) -> int | None:
    return None if guard is None else guard.hold


class Lock:
    """A lock that is held.

    `token` is the fencing token: larger than that of every earlier holder of this lock. `state` is what was told last: `certain`, `suspect` (the
    lease was not renewed in time, and ends soon), `uncertain` (stop), `lost` (for good).
    """

    def __init__(self, client: Client, path: Path, granted: Locked) -> None:
        self.path = path
        self.hold = granted.hold
        self.token = granted.token
        #: The locked file.
        self.object = granted.object
        #: Of a semaphore: which slot it is, from 0.
        self.slot = granted.slot
        self.state = "certain"
        self._client = client
        self._certainty = Certainty()
        self._changed = threading.Condition()
        self._callbacks: list[Callable[[Lock, str], None]] = []
        client._talk.listen(self.hold, self)

    def __repr__(self) -> str:
        return f"<Lock {self.path!r} token={self.token} {self.state}>"

    def told(self, state: str) -> None:
        """What became of it; called by the client."""
        with self._changed:
            if self.state == "lost":
                return
            self.state = state
            callbacks = list(self._callbacks)
            self._changed.notify_all()
        for callback in callbacks:
            self._client._calls.put(partial(callback, self, state))

    def on_change(self, callback: Callable[[Lock, str], None]) -> None:
        """Calls `callback` with the lock and each state that it comes to, in a thread of the client's own."""
        with self._changed:
            self._callbacks.append(callback)
            missed = self.state if self.state != "certain" else None
        if missed is not None:
            self._client._calls.put(partial(callback, self, missed))

    def on_lost(self, callback: Callable[[Lock], None]) -> None:
        """Calls `callback` once when the lock must not be relied on any more: it is uncertain, or lost."""
        told: list[str] = []

        def stop(lock: Lock, state: str) -> None:
            if state in ("uncertain", "lost") and not told:
                told.append(state)
                callback(lock)

        self.on_change(stop)

    def wait(self, state: str = "lost", timeout: float | None = None) -> bool:
        """Waits until it has come to a state; whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self.state == state, timeout)

    def is_valid(self) -> bool:
        """Whether nobody else can have the lock at this moment: the check to make right before acting under it.

        It costs no message to the agent as long as half of the lease is left that was told last.
        """
        if self.state == "lost":
            return False
        if self._certainty.is_fresh():
            return True
        try:
            hold = self._client._do(requests.hold(self.hold))
        except errors.Error:
            # What was told before stays true where nothing can be asked.
            return self.state != "lost" and self._certainty.left_ns() > 0
        return self._certainty.learn(hold)

    def check(self) -> None:
        """Raises `LockLost` unless it is valid."""
        if not self.is_valid():
            raise errors.LockLost("LOCK_LOST", f"{self.path!r}: the lock is {self.state}")

    def unlock(self) -> None:
        """Gives it back: nothing that acts under it is left."""
        with self._changed:
            lost, self.state = self.state == "lost", "lost"
        self._certainty.end()
        self._client._talk.forget(self.hold)
        if not lost:
            self._client._do(("unlock", {"hold": self.hold}, lambda answer: answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        lost = self.state == "lost"
        self.unlock()
        if lost and kind is None:
            raise errors.LockLost("LOCK_LOST", f"{self.path!r}: the lock was lost before the end of the block")


class Watch:
    """What becomes of a file or directory. Iterating waits for changes, until the object is gone; each is the newest of its kind."""

    def __init__(self, client: Client, object: int) -> None:
        self.object = object
        self._client = client
        self._news = News()
        self._came = threading.Condition()
        self._is_over = False
        if client._talk.watch(object, self._put):
            client.call("watch", object=object)

    def _put(self, change: Change) -> None:
        with self._came:
            self._news.put(change)
            self._is_over |= change.what == "gone" or self._client._talk.ended is not None
            self._came.notify_all()

    def next(self, timeout: float | None = None) -> Change | None:
        """The next change; None: none came in time, or none will come."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._came:
            while (change := self._news.take()) is None and not self._is_over:
                left = None if until is None else until - time.monotonic()
                if (left is not None and left <= 0) or self._client._talk.ended is not None:
                    return None
                self._came.wait(left)
            return change

    def __iter__(self) -> Iterator[Change]:
        while (change := self.next()) is not None:
            yield change

    def close(self) -> None:
        if self._client._talk.unwatch(self.object, self._put):
            self._client.call("unwatch", object=self.object)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Member:
    """An ephemeral file of this client's; `leave` removes it."""

    def __init__(self, client: Client, path: Path, object: int) -> None:
        self.path = path
        self.object = object
        self._client = client

    def leave(self) -> None:
        self._client.call("leave", object=self.object)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.leave()
        except errors.Disconnected:
            pass  # With the connection the file went.


class NamedLease:
    """A named lease and its secret, with which anybody keeps it."""

    def __init__(self, client: Client, path: Path, secret: str) -> None:
        self.path = path
        self.secret = secret
        self._client = client

    def __repr__(self) -> str:
        return f"<NamedLease {self.path!r}>"

    def keep(self) -> float:
        """Gives it its whole time again; for how many seconds it lasts from now on, at least. `NotFound`: it has ended, for good."""
        return self._client._do(requests.keep_lease(self.path, self.secret))

    def attach(self, path: Path) -> Attributes:
        """Has a file go with it."""
        return self._client._do(requests.attach(path, self.path, self.secret))

    def revoke(self) -> None:
        """Ends it, with all that is attached."""
        self._client._do(requests.revoke_lease(self.path))


class Leadership(Lock):
    """The leader's part of an election: a lock, whose holder is named to others. `unlock` ends it."""

    #: The file that names it.
    named: int | None = None

    def unlock(self) -> None:
        named, self.named = self.named, None
        if named is not None:
            try:
                self._client.call("leave", object=named)
            except errors.Error:
                pass  # The next leader removes it, or the end of the connection.
        super().unlock()


class Item(Lock):
    """An item of a queue that is worked on: a lock on it. At the end of its block it is done, or given back if that raised."""

    def __init__(self, client: Client, directory: Path, granted: Locked) -> None:
        self._directory = directory
        self.name, self._version, self.data = granted.item or ("", 0, b"")
        super().__init__(client, recipes.under(directory, self.name), granted)

    def done(self) -> None:
        """Removes it: nobody takes it any more. Before the work: at most once; after it: at least once."""
        self._client._do(recipes.remove_item(self._directory, self.name, self._version, self.hold))
        self.unlock()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and self.state != "lost":
            self.done()
        else:
            super().__exit__(kind, error, trace)


class Entered:
    """A round of a barrier, in which this client is. At the end of its block it has left, and so have the others."""

    def __init__(self, client: Client, hold: int, number: int) -> None:
        #: Which round, from 1.
        self.round = number
        self._client = client
        self._hold: int | None = hold

    def leave(self) -> None:
        """Leaves, and waits until all others have left or are gone."""
        hold, self._hold = self._hold, None
        if hold is not None:
            self._client._do(("exit", {"hold": hold}, lambda answer: answer), waits=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


class Run:
    """The right to do something in a period. At the end of its block it is on record how that ended: status 0, or 1 if it raised."""

    def __init__(self, lock: Lock, record: recipes.Record) -> None:
        #: Held meanwhile; its token is larger than that of every former run.
        self.lock = lock
        self._record = record

    def __enter__(self) -> Lock:
        return self.lock

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self.lock.state != "lost":
                self.lock._client._steps(recipes.end_period(self.lock.path, self._record, int(kind is not None), self.lock.hold))
        finally:
            self.lock.__exit__(kind, error, trace)
