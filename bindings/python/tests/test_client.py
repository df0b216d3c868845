"""The client for threads, with real processes."""

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
import unittest
from collections.abc import Callable, Iterator
from dataclasses import fields

import cistern
from world import ONE, PATIENCE, TWO, Stopped, eventually, evict, path, process_of


class NamedLeases(unittest.TestCase):
    def setUp(self) -> None:
        self.client = self.enterContext(cistern.Client(ONE))
        self.other = self.enterContext(cistern.Client(TWO))

    def test_a_lease_outlives_its_client_and_whoever_has_the_secret_keeps_it(self) -> None:
        name, file = path("lease"), path("file")
        with cistern.Client(ONE) as maker:
            secret = maker.create_lease(name, 3600, data="10.0.0.1").secret
        lease = self.other.named_lease(name, secret)
        self.assertEqual(self.other.read(name), b"10.0.0.1")
        self.client.batch([{"op": "create", "path": file, "exclusive": True},
                           {"op": "lease_attach", "path": file, "lease": name, "secret": secret}])
        self.assertGreater(lease.keep(), 3500)
        rows = {row.path: row for row in self.client.leases(name)}
        self.assertEqual((set(rows), rows[name].files, rows[file].lease), ({name, file}, 2, rows[name].object))
        wrong = self.client.create_lease(path("other"), 3600)
        with self.assertRaises(cistern.Error) as refused:
            self.other.named_lease(name, wrong.secret).keep()
        self.assertEqual(refused.exception.code, "EACCES")
        lease.revoke()
        with self.assertRaises(cistern.NotFound):
            lease.keep()
        self.assertFalse(self.client.exists(name))
        eventually("its file goes", lambda: not self.client.exists(file))
        wrong.revoke()

    def test_a_lease_that_nobody_keeps_ends(self) -> None:
        lease = self.client.create_lease(path("short"), 0.5)
        eventually("it ends", lambda: not self.other.exists(lease.path))
        with self.assertRaises(cistern.NotFound):
            lease.keep()


class Files(unittest.TestCase):
    def setUp(self) -> None:
        self.client = self.enterContext(cistern.Client(ONE))
        self.other = self.enterContext(cistern.Client(TWO))

    def test_files_are_written_read_listed_renamed_and_removed(self) -> None:
        top = path("files")
        self.assertEqual(self.client.mkdir(top, mode=0o750).mode, 0o750)
        made = self.client.write(f"{top}/a", b"\xff\x00", if_version=0)
        self.assertEqual((made.kind, made.size, made.uid), ("file", 2, os.getuid()))
        self.assertEqual(self.other.read_version(f"{top}/a"), (b"\xff\x00", made.version))
        self.client.rename(f"{top}/a", f"{top}/b", rule="no_replace")
        self.client.symlink("b", f"{top}/l")
        self.assertEqual(self.other.read_link(f"{top}/l"), "b")
        self.assertEqual(self.other.stat(f"{top}/l", follow=False).kind, "symlink")
        self.client.set_attributes(f"{top}/b", mode=0o600, size=1)
        self.client.set_xattr(f"{top}/b", "user.origin", "here")
        self.assertEqual(self.other.get_xattr(f"{top}/b", "user.origin"), b"here")
        self.assertEqual(self.other.list_xattr(f"{top}/b"), ["user.origin"])
        rows = {entry.name: entry for entry in self.other.listdir(top, detail=True)}
        attributes = rows["b"].attributes
        assert attributes is not None
        self.assertEqual((sorted(map(str, rows)), attributes.mode, attributes.size), (["b", "l"], 0o600, 1))
        self.client.write(top.encode() + b"/\xe9", "latin")
        self.assertIn(b"\xe9", [entry.name for entry in self.other.listdir(top)])
        self.client.remove(f"{top}/b")
        self.assertFalse(self.other.exists(f"{top}/b"))

    def test_errors_have_codes_and_kinds(self) -> None:
        with self.assertRaises(cistern.NotFound) as missing:
            self.client.read(path("none"))
        self.assertEqual((missing.exception.code, missing.exception.exit), ("ENOENT", 1))
        file = path("version")
        version = self.client.write(file, "1").version
        self.other.write(file, "2")
        with self.assertRaises(cistern.VersionChanged) as changed:
            self.client.write(file, "3", if_version=version)
        self.assertEqual((changed.exception.exit, changed.exception.path, self.client.read(file)), (3, file, b"2"))
        with self.assertRaises(cistern.Disconnected):
            cistern.Client("/nowhere/agent.sock")

    def test_a_batch_is_made_whole_or_not_at_all(self) -> None:
        one, two = path("one"), path("two")
        versions = self.client.batch([{"op": "create", "path": one}, {"op": "write", "path": one, "data": b"\xfe"}, {"op": "create", "path": two}])
        self.assertEqual(len(versions), 3)
        with self.assertRaises(cistern.Exists) as refused:
            self.client.batch([{"op": "unlink", "path": one}, {"op": "create", "path": two, "exclusive": True}])
        self.assertEqual((refused.exception.item, self.other.read(one)), (1, b"\xfe"))

    def test_one_client_serves_many_threads(self) -> None:
        files = [path("thread") for _ in range(20)]
        threads = [threading.Thread(target=self.client.write, args=(file, file)) for file in files]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([self.other.read(file).decode() for file in files], files)


class Locks(unittest.TestCase):
    def setUp(self) -> None:
        self.client = self.enterContext(cistern.Client(ONE))
        self.other = self.enterContext(cistern.Client(TWO))

    def test_a_lock_excludes_and_its_successor_has_a_larger_token(self) -> None:
        job = path("job")
        with self.client.lock(job, create=True) as lock:
            self.assertTrue(lock.is_valid())
            with self.assertRaises(cistern.InUse):
                self.other.lock(job, wait=0)
            with self.assertRaises(cistern.TimedOut):
                self.other.lock(job, wait=0.2)
            self.assertEqual([row["state"] for row in self.other.locks(job)], ["holds"])
        with self.other.lock(job, wait=PATIENCE) as later:
            self.assertGreater(later.token, lock.token)
        self.assertFalse(lock.is_valid())
        with self.client.lock(job, shared=True), self.other.lock(job, shared=True, wait=PATIENCE):
            pass

    def test_a_lock_that_is_waited_for_keeps_nobody_waiting(self) -> None:
        job = path("job")
        held = self.other.lock(job, create=True)
        granted: list[cistern.Lock] = []
        waiter = threading.Thread(target=lambda: granted.append(self.client.lock(job)))
        waiter.start()
        eventually("it waits", lambda: len(self.other.locks(job)) == 2)
        self.assertGreater(self.client.ping(), 0)
        held.unlock()
        waiter.join(PATIENCE)
        self.assertGreater(granted[0].token, held.token)

    def test_whoever_ends_gives_up_what_it_had(self) -> None:
        job, me = path("job"), path("me")
        gone = cistern.Client(ONE)
        held = gone.lock(job, create=True)
        gone.join(me, "here")
        gone.close()
        self.assertEqual(held.state, "lost")
        with self.other.lock(job, wait=PATIENCE):
            eventually("its file is gone", lambda: not self.other.exists(me))

    def test_a_lost_lock_is_told_and_its_holder_changes_nothing_any_more(self) -> None:
        job, report = path("job"), path("report")
        told: list[str] = []
        lost = threading.Event()
        lock = self.client.lock(job, create=True)
        lock.on_change(lambda _lock, state: told.append(state))
        lock.on_lost(lambda _lock: lost.set())
        self.client.write(report, "mine", guard=lock)
        evict("one")
        self.assertTrue(lost.wait(PATIENCE))
        self.assertTrue(lock.wait("lost", PATIENCE))
        self.assertFalse(lock.is_valid())
        with self.assertRaises(cistern.StaleGuard):
            self.client.write(report, "stale", guard=lock)
        with self.assertRaises(cistern.LockLost):
            lock.check()
        self.assertEqual(self.other.read(report), b"mine")
        with self.assertRaises(cistern.LockLost), lock:
            pass

    def test_a_lock_is_uncertain_while_the_server_is_silent_and_regained_after(self) -> None:
        told: list[str] = []
        lost = threading.Event()
        with self.client.lock(path("job"), create=True) as lock:
            lock.on_change(lambda _lock, state: told.append(state))
            lock.on_lost(lambda _lock: lost.set())
            token = lock.token
            with Stopped(process_of("SERVER")):
                # A request that waits for the server keeps no event waiting.
                reading = threading.Thread(target=self.client.ping)
                reading.start()
                self.assertTrue(lock.wait("uncertain", PATIENCE))
                self.assertTrue(reading.is_alive())
                self.assertFalse(lock.is_valid())
                began = time.monotonic()
                with self.assertRaises(cistern.TimedOut):
                    cistern.Client(ONE, timeout=0.2).read(path("none"))
                self.assertLess(time.monotonic() - began, 5)
            self.assertTrue(lock.wait("certain", PATIENCE))
            reading.join(PATIENCE)
            self.assertTrue(lock.is_valid() and lost.is_set() and lock.token == token)
            # On a machine that is busy a lease is renewed late now and then.
            eventually("all are told", lambda: told[-1] == "certain" and told[-3:-1] == ["suspect", "uncertain"])


class Groups(unittest.TestCase):
    def setUp(self) -> None:
        self.client = self.enterContext(cistern.Client(ONE))
        self.other = self.enterContext(cistern.Client(TWO))

    def test_members_come_and_go_and_watchers_are_told(self) -> None:
        group = path("group")
        self.client.mkdir(group)
        with self.client.watch(group) as changes, self.client.watch(group) as more:
            first = changes.next(PATIENCE)
            assert first is not None
            self.assertEqual((first, more.next(PATIENCE)), (first, first))
            self.assertEqual(first.what, "certain")
            with self.other.join(f"{group}/web1", "10.0.0.1:80"):
                change = changes.next(PATIENCE)
                assert change is not None and change.version is not None and first.version is not None
                self.assertEqual((change.what, change.version > first.version), ("changed", True))
                self.assertEqual([entry.name for entry in self.client.listdir(group)], ["web1"])
                with self.assertRaises(cistern.Exists):
                    self.client.join(f"{group}/web1")
            self.assertEqual([(change.what, self.client.listdir(group)) for change in [changes.next(PATIENCE)] if change], [("changed", [])])
            self.assertIsNone(changes.next(0.05))
            self.other.rmdir(group)
            self.assertEqual([change.what for change in changes][-1:], ["gone"])


@contextlib.contextmanager
def running(play: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=play)
    thread.start()
    yield
    thread.join(PATIENCE)


class Ends(unittest.TestCase):
    """An agent that is killed while a program holds a lock, waits and watches: played, so that it ends just then."""

    def setUp(self) -> None:
        self.socket = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "agent.sock")
        self.listener = self.enterContext(socket.socket(socket.AF_UNIX))
        self.listener.bind(self.socket)
        self.listener.listen()
        self.enterContext(running(self._play))

    def _play(self) -> None:
        stream, _ = self.listener.accept()
        answers = {"hello": {"hello": {"api": 1}}, "lock": {"locked": {"hold": 1, "token": 5, "object": 9}}, "watch": {"done": {}}, "stat": {}}
        with stream, stream.makefile("rw") as lines:
            for line in lines:
                asked = json.loads(line)
                if asked["op"] == "read":
                    return
                # What is told before the answer that names the hold is not lost.
                if asked["op"] == "lock":
                    lines.write('{"event":{"lock":{"hold":1,"state":"suspect"}}}\n')
                answer = answers[asked["op"]] or {"attr": dict.fromkeys((field.name for field in fields(cistern.Attributes)), 0) | {"mode": "0644"}}
                lines.write(json.dumps({"id": asked["id"], "ok": answer}) + "\n")
                lines.flush()

    def test_everything_is_told_that_the_agent_has_ended(self) -> None:
        client = cistern.Client(self.socket)
        lock, changes = client.lock("/job"), client.watch("/site")
        self.assertTrue(lock.wait("suspect", PATIENCE))
        with self.assertRaises(cistern.Disconnected):
            client.read("/waits")
        self.assertTrue(lock.wait("lost", PATIENCE))
        self.assertEqual((lock.is_valid(), [change.what for change in changes]), (False, ["uncertain"]))
        with self.assertRaises(cistern.Disconnected):
            client.read("/after")
        with self.assertRaises(cistern.LockLost), lock:
            pass


if __name__ == "__main__":
    unittest.main()
