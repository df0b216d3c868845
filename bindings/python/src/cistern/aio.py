"""The client for asyncio: the same as `cistern.Client`, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from . import errors, recipes, requests
from .wire import API, Answer, Attributes, Certainty, Change, Conversation, Data, Entry, LeaseFile, Locked, News, Path, millis, sockets

T = TypeVar("T")


async def _connect(named: str | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    tried = [named] if named else sockets()
    failed: OSError | None = None
    for path in tried:
        try:
            return await asyncio.open_unix_connection(path)
        except OSError as error:
            failed = error
    message = f"no agent answers at {' or '.join(tried)}: {failed}; is `cistern agent run` running?"
    raise errors.Disconnected("NO_AGENT", message, exit=69)


class Client:
    """A connection to the agent of this host, for the tasks of one event loop: `async with Client() as client`.

    `socket` and `timeout` as for `cistern.Client`.
    """

    def __init__(self, socket: str | None = None, *, timeout: float | None = None) -> None:
        self._socket = socket
        self._timeout = timeout
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._talk = Conversation(self._send)
        #: What the agent says that it is.
        self.agent: Answer = {}

    # The connection.

    async def connect(self) -> Self:
        reader, self._writer = await _connect(self._socket)
        self._reading = asyncio.create_task(self._read(reader))
        try:
            self.agent = (await self.call("hello", api=API))["hello"]
        except BaseException:
            await self.close()
            raise
        return self

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection, and what belongs to it."""
        self._talk.end(errors.Disconnected("CLOSED", "the client is closed", exit=69))
        if self._writer is not None:
            self._writer.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def _send(self, line: bytes) -> None:
        if self._writer is None:
            raise errors.Disconnected("CLOSED", "the client is not connected: `async with Client() as client`", exit=69)
        self._writer.write(line)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        why = "the agent has ended the connection"
        try:
            while data := await reader.read(1 << 16):
                self._talk.feed(data)
        except Exception as error:
            why = f"the agent's lines cannot be read: {error}"
        finally:
            self._talk.end(errors.Disconnected("NO_AGENT", why, exit=69))

    async def call(self, op: str, **fields: Any) -> Answer:
        """Any request of the interface (docs/api.md), and the value of its answer's `ok`."""
        return await self._do((op, fields, lambda answer: answer))

    async def _do(self, request: requests.Request[T], *, waits: bool = False) -> T:
        op, fields, value = request
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def reply(answer: Answer | None, error: errors.Error | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(answer or {})

        if not waits and self._timeout is not None:
            fields = {"deadline_ms": millis(self._timeout)} | fields
        number = self._talk.ask(reply, op, fields)
        try:
            if self._writer is not None:
                await self._writer.drain()
            return value(await done)
        except asyncio.CancelledError:
            # An answer that came in this turn of the loop is one that nobody takes.
            if done.done() and not done.cancelled() and done.exception() is None and (locked := done.result().get("locked")):
                self._talk.ask(lambda *_: None, "unlock", {"hold": locked["hold"]})
            self._talk.give_up(number)
            raise

    # Files.

    async def stat(self, path: Path, *, follow: bool = True) -> Attributes:
        return await self._do(requests.stat(path, follow))

    async def exists(self, path: Path) -> bool:
        try:
            await self.stat(path)
        except errors.NotFound:
            return False
        return True

    async def listdir(self, path: Path, *, detail: bool = False) -> list[Entry]:
        return await self._do(requests.listing(path, detail))

    async def read(self, path: Path) -> bytes:
        return await self._do(requests.read(path))

    async def read_version(self, path: Path) -> tuple[bytes, int]:
        """The contents, and the version that they are of, for `write(if_version=...)`."""
        return await self._do(requests.read_version(path))

    async def read_link(self, path: Path) -> Path:
        return await self._do(requests.read_link(path))

    async def write(
        self, path: Path, data: Data, *, mode: int | None = None, if_version: int | None = None, guard: Lock | None = None
    ) -> Attributes:
        """Replaces the contents of a file (at most 1 MiB), or makes it. `if_version`: only if it has that; 0: only if it is not there.

        `guard`, here and below: only while that lock is held under its token; otherwise `StaleGuard`, and nothing is changed.
        """
        return await self._do(requests.write(path, data, mode, if_version, _hold(guard)))

    async def create(self, path: Path, *, exclusive: bool = False, mode: int | None = None, guard: Lock | None = None) -> Attributes:
        return await self._do(requests.create(path, exclusive, mode, _hold(guard)))

    async def mkdir(self, path: Path, *, mode: int | None = None, guard: Lock | None = None) -> Attributes:
        return await self._do(requests.mkdir(path, mode, _hold(guard)))

    async def symlink(self, target: Path, path: Path, *, guard: Lock | None = None) -> Attributes:
        return await self._do(requests.symlink(target, path, _hold(guard)))

    async def link(self, existing: Path, path: Path, *, guard: Lock | None = None) -> Attributes:
        return await self._do(requests.link(existing, path, _hold(guard)))

    async def remove(self, path: Path, *, force: bool = False, guard: Lock | None = None) -> None:
        """Removes a file; `force`: even if somebody else has locked it."""
        await self._do(requests.remove(path, force, _hold(guard)))

    async def rmdir(self, path: Path, *, guard: Lock | None = None) -> None:
        await self._do(requests.rmdir(path, _hold(guard)))

    async def rename(self, source: Path, target: Path, *, rule: str = "replace", force: bool = False, guard: Lock | None = None) -> None:
        """`rule`: `replace`, `no_replace` or `exchange`."""
        await self._do(requests.rename(source, target, rule, force, _hold(guard)))

    async def set_attributes(
        self,
        path: Path,
        *,
        mode: int | None = None,
        size: int | None = None,
        mtime_ns: int | None = None,
        guard: Lock | None = None,
    ) -> Attributes:
        return await self._do(requests.set_attributes(path, mode, size, mtime_ns, _hold(guard)))

    async def get_xattr(self, path: Path, name: Path) -> bytes:
        return await self._do(requests.get_xattr(path, name))

    async def list_xattr(self, path: Path) -> list[Path]:
        return await self._do(requests.list_xattr(path))

    async def set_xattr(self, path: Path, name: Path, value: Data, *, rule: str = "any", guard: Lock | None = None) -> Attributes:
        return await self._do(requests.set_xattr(path, name, value, rule, _hold(guard)))

    async def remove_xattr(self, path: Path, name: Path, *, guard: Lock | None = None) -> Attributes:
        return await self._do(requests.remove_xattr(path, name, _hold(guard)))

    async def batch(
        self, items: Sequence[Mapping[str, Any]], *, if_versions: Mapping[Path, int] | None = None, guard: Lock | None = None
    ) -> list[int]:
        """Makes all changes or none; the version of what each was about, 0 if it is gone. Items are those of docs/api.md."""
        return await self._do(requests.batch(items, if_versions, _hold(guard)))

    # Locks, watches, membership.

    def lock(self, path: Path, *, shared: bool = False, slots: int | None = None, wait: float | None = None, create: bool = False) -> Locking:
        """Takes the lock on a file, as `cistern.Client.lock`: `async with client.lock(path) as lock`, or `lock = await client.lock(path)`."""
        return Locking(self._lock(path, shared, wait, create, slots))

    async def _lock(self, path: Path, shared: bool, wait: float | None, create: bool, slots: int | None = None) -> Lock:
        if create:
            await self.create(path)
        granted = await self._do(requests.lock(path, shared, wait, slots), waits=True)
        return Lock(self, path, granted)

    async def locks(self, path: Path | None = None) -> list[Answer]:
        """Holders and waiters, of one file or of all."""
        return await self._do(requests.locks(path))

    async def watch(self, path: Path) -> Watch:
        """Watches what the path names now: `async with await client.watch(path) as changes`."""
        watch = Watch(self, (await self.stat(path)).object)
        await watch._begin()
        return watch

    async def join(self, path: Path, data: Data = b"", *, mode: int | None = None) -> Member:
        """Makes an ephemeral file, which goes with this client, or with its host: `async with await client.join(path)`."""
        return Member(self, path, await self._do(requests.join(path, data, mode, None)))

    # Recipes (docs/recipes.md).

    async def _steps(self, steps: recipes.Steps[T]) -> T:
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
                    await asyncio.sleep(step)
                else:
                    value = await self._do(step)
            except errors.Error as error:
                failed = error

    async def campaign(self, directory: Path, value: Data = b"", *, wait: float | None = None) -> Leadership:
        """Leads an election as soon as nobody before it does; `value` is what others are told of the leader."""
        lock = recipes.under(directory, "lock")
        try:
            granted = await self._do(requests.lock(lock, False, wait, None), waits=True)
        except errors.NotFound:
            await self._steps(recipes.lock_of_election(directory))
            granted = await self._do(requests.lock(lock, False, wait, None), waits=True)
        leadership = Leadership(self, lock, granted)
        try:
            leadership.named = await self._steps(recipes.name_leader(directory, granted.hold, granted.token, value))
        except BaseException:
            await leadership.unlock()
            raise
        return leadership

    async def leader(self, directory: Path) -> recipes.Leader | None:
        """Who leads, as far as the server knows; None: nobody. To follow it, watch the directory and the leader's file."""
        return await self._steps(recipes.leader(directory))

    async def put(self, directory: Path, data: Data, *, name: str | None = None) -> str:
        """Puts an item at the end of a queue; its name. With a `name`, `VersionChanged` if an item of that name is in it."""
        return await self._steps(recipes.put(directory, data, name))

    async def take(self, directory: Path, *, wait: float | None = None) -> Item:
        """Takes the first item of a queue that nobody works on, and waits for one; `wait` as for `lock`."""
        granted = await self._do(requests.take(directory, wait), waits=True)
        return Item(self, directory, granted)

    async def count(self, path: Path) -> int:
        """A counter's number; 0 if there is no file."""
        return await self._steps(recipes.count(path))

    async def add(self, path: Path, amount: int = 1) -> int:
        """Adds to a counter, once or (`OutcomeUnknown`) perhaps not at all; the new number."""
        return await self._steps(recipes.add(path, amount))

    async def compare_and_set(self, path: Path, old: int, new: int) -> bool:
        """Sets a counter to `new` if it is `old`; whether it was."""
        return await self._steps(recipes.compare_and_set(path, old, new))

    async def enter(self, directory: Path, parties: int, *, wait: float | None = None) -> Entered:
        """Waits until so many are at a barrier."""
        hold, number = await self._do(requests.enter(directory, parties, wait), waits=True)
        return Entered(self, hold, number)

    async def once(self, path: Path, period: str, *, wait: float | None = None, rerun_lost: bool = False) -> Run | None:
        """The right to do something in this period; None: somebody has or had it. Names of later periods are larger."""
        lock = await self.lock(path, wait=wait, create=True)
        try:
            record = await self._steps(recipes.begin_period(path, period, rerun_lost, lock.hold, lock.token))
        except BaseException:
            await lock.unlock()
            raise
        if record is None:
            await lock.unlock()
            return None
        return Run(lock, record)

    async def members(self, directory: Path) -> dict[Path, bytes]:
        """Who has joined in a directory, and what each says of itself."""
        return await self._steps(recipes.members(directory))

    # Named leases.

    async def create_lease(
        self, path: Path, ttl: float, *, data: Data | None = None, secret: str | None = None, mode: int | None = None
    ) -> NamedLease:
        """Makes a named lease of `ttl` seconds: a file that goes when nobody keeps it, with all that is attached. It outlives this client.

        `secret` is one that the agent has given before; without it there is a new one, which the lease has.
        """
        return NamedLease(self, path, await self._do(requests.create_lease(path, ttl, secret, data, mode)))

    def named_lease(self, path: Path, secret: str) -> NamedLease:
        """A named lease that is there, for whoever has its secret."""
        return NamedLease(self, path, secret)

    async def leases(self, lease: Path | None = None) -> list[LeaseFile]:
        """All named leases, or the files that go with one."""
        return await self._do(requests.leases(lease))

    # Agent and server.

    async def ping(self) -> float:
        """Seconds to the server and back."""
        return float((await self.call("ping"))["pong"]["round_trip_us"]) / 1e6

    async def lease(self) -> Answer:
        return dict((await self.call("lease"))["lease"])

    async def server(self) -> Answer:
        return dict((await self.call("server"))["server"])


def _hold(guard: Lock | None) -> int | None:
    return None if guard is None else guard.hold


class Locking:
    """A lock that is asked for: awaited, or entered."""

    def __init__(self, asking: Any) -> None:
        self._asking = asking
        self._lock: Lock | None = None

    def __await__(self) -> Generator[Any, None, Lock]:
        return self._asking.__await__()  # type: ignore[no-any-return]

    async def __aenter__(self) -> Lock:
        lock: Lock = await self._asking
        self._lock = lock
        return lock

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._lock is not None:
            await self._lock.__aexit__(kind, error, trace)


class Lock:
    """A lock that is held, as `cistern.Lock`. Callbacks are called in the loop."""

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
        self._callbacks: list[Callable[[Lock, str], None]] = []
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        client._talk.listen(self.hold, self)

    def __repr__(self) -> str:
        return f"<Lock {self.path!r} token={self.token} {self.state}>"

    def told(self, state: str) -> None:
        """What became of it; called by the client."""
        if self.state == "lost":
            return
        self.state = state
        for wanted, waiting in self._waiting:
            if wanted == state and not waiting.done():
                waiting.set_result(None)
        for callback in list(self._callbacks):
            asyncio.get_running_loop().call_soon(callback, self, state)

    def on_change(self, callback: Callable[[Lock, str], None]) -> None:
        """Calls `callback` with the lock and each state that it comes to."""
        self._callbacks.append(callback)
        if self.state != "certain":
            asyncio.get_running_loop().call_soon(callback, self, self.state)

    def on_lost(self, callback: Callable[[Lock], None]) -> None:
        """Calls `callback` once when the lock must not be relied on any more: it is uncertain, or lost."""
        told: list[str] = []

        def stop(lock: Lock, state: str) -> None:
            if state in ("uncertain", "lost") and not told:
                told.append(state)
                callback(lock)

        self.on_change(stop)

    async def wait(self, state: str = "lost") -> None:
        """Waits until it has come to a state."""
        if self.state != state:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((state, waiting))
            try:
                await waiting
            finally:
                self._waiting.remove((state, waiting))

    async def is_valid(self) -> bool:
        """Whether nobody else can have the lock at this moment: the check to make right before acting under it."""
        if self.state == "lost":
            return False
        if self._certainty.is_fresh():
            return True
        try:
            hold = await self._client._do(requests.hold(self.hold))
        except errors.Error:
            # What was told before stays true where nothing can be asked.
            return self.state != "lost" and self._certainty.left_ns() > 0
        return self._certainty.learn(hold)

    async def check(self) -> None:
        """Raises `LockLost` unless it is valid."""
        if not await self.is_valid():
            raise errors.LockLost("LOCK_LOST", f"{self.path!r}: the lock is {self.state}")

    async def unlock(self) -> None:
        """Gives it back: nothing that acts under it is left."""
        lost, self.state = self.state == "lost", "lost"
        self._certainty.end()
        self._client._talk.forget(self.hold)
        if not lost:
            # Also where this task is cancelled: the request is written before anything is waited for.
            await self._client._do(("unlock", {"hold": self.hold}, lambda answer: answer))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        lost = self.state == "lost"
        await self.unlock()
        if lost and kind is None:
            raise errors.LockLost("LOCK_LOST", f"{self.path!r}: the lock was lost before the end of the block")


class Watch:
    """What becomes of a file or directory: `async for change in watch`, until the object is gone; each is the newest of its kind."""

    def __init__(self, client: Client, object: int) -> None:
        self.object = object
        self._client = client
        self._news = News()
        self._came = asyncio.Event()
        self._is_over = False

    async def _begin(self) -> None:
        if self._client._talk.watch(self.object, self._put):
            await self._client.call("watch", object=self.object)

    def _put(self, change: Change) -> None:
        self._news.put(change)
        self._is_over |= change.what == "gone" or self._client._talk.ended is not None
        self._came.set()

    async def next(self) -> Change | None:
        """The next change; None: none will come."""
        while (change := self._news.take()) is None and not self._is_over and self._client._talk.ended is None:
            self._came.clear()
            await self._came.wait()
        return change

    async def __aiter__(self) -> AsyncIterator[Change]:
        while (change := await self.next()) is not None:
            yield change

    async def close(self) -> None:
        if self._client._talk.unwatch(self.object, self._put):
            await self._client.call("unwatch", object=self.object)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Member:
    """An ephemeral file of this client's; `leave` removes it."""

    def __init__(self, client: Client, path: Path, object: int) -> None:
        self.path = path
        self.object = object
        self._client = client

    async def leave(self) -> None:
        await self._client.call("leave", object=self.object)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.leave()
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

    async def keep(self) -> float:
        """Gives it its whole time again; for how many seconds it lasts from now on, at least. `NotFound`: it has ended, for good."""
        return await self._client._do(requests.keep_lease(self.path, self.secret))

    async def attach(self, path: Path) -> Attributes:
        """Has a file go with it."""
        return await self._client._do(requests.attach(path, self.path, self.secret))

    async def revoke(self) -> None:
        """Ends it, with all that is attached."""
        await self._client._do(requests.revoke_lease(self.path))


class Leadership(Lock):
    """The leader's part of an election: a lock, whose holder is named to others. `unlock` ends it."""

    #: The file that names it.
    named: int | None = None

    async def unlock(self) -> None:
        named, self.named = self.named, None
        if named is not None:
            try:
                await self._client.call("leave", object=named)
            except errors.Error:
                pass  # The next leader removes it, or the end of the connection.
        await super().unlock()


class Item(Lock):
    """An item of a queue that is worked on: a lock on it. At the end of its block it is done, or given back if that raised."""

    def __init__(self, client: Client, directory: Path, granted: Locked) -> None:
        self._directory = directory
        self.name, self._version, self.data = granted.item or ("", 0, b"")
        super().__init__(client, recipes.under(directory, self.name), granted)

    async def done(self) -> None:
        """Removes it: nobody takes it any more. Before the work: at most once; after it: at least once."""
        await self._client._do(recipes.remove_item(self._directory, self.name, self._version, self.hold))
        await self.unlock()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and self.state != "lost":
            await self.done()
        else:
            await super().__aexit__(kind, error, trace)


class Entered:
    """A round of a barrier, in which this client is. At the end of its block it has left, and so have the others."""

    def __init__(self, client: Client, hold: int, number: int) -> None:
        #: Which round, from 1.
        self.round = number
        self._client = client
        self._hold: int | None = hold

    async def leave(self) -> None:
        """Leaves, and waits until all others have left or are gone."""
        hold, self._hold = self._hold, None
        if hold is not None:
            await self._client._do(("exit", {"hold": hold}, lambda answer: answer), waits=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()


class Run:
    """The right to do something in a period. At the end of its block it is on record how that ended: status 0, or 1 if it raised."""

    def __init__(self, lock: Lock, record: recipes.Record) -> None:
        #: Held meanwhile; its token is larger than that of every former run.
        self.lock = lock
        self._record = record

    async def __aenter__(self) -> Lock:
        return self.lock

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self.lock.state != "lost":
                await self.lock._client._steps(recipes.end_period(self.lock.path, self._record, int(kind is not None), self.lock.hold))
        finally:
            await self.lock.__aexit__(kind, error, trace)
