"""The client for asyncio, with real processes."""

import asyncio
import inspect
import unittest
from typing import Any

import cistern
from cistern import aio, client
from world import ONE, PATIENCE, TWO, evict, path


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.client = await self.enterAsyncContext(aio.Client(ONE))
        self.other = await self.enterAsyncContext(aio.Client(TWO))

    async def test_requests_of_many_tasks_are_answered_each(self) -> None:
        files = [path("task") for _ in range(20)]
        await asyncio.gather(*(self.client.write(file, file) for file in files))
        self.assertEqual([data.decode() for data in await asyncio.gather(*map(self.other.read, files))], files)
        with self.assertRaises(cistern.NotFound):
            await self.client.read(path("none"))

    async def test_a_named_lease_is_kept_by_another_client_and_revoked(self) -> None:
        name, file = path("lease"), path("file")
        made = await self.client.create_lease(name, 3600)
        lease = self.other.named_lease(name, made.secret)
        await self.client.create(file)
        await lease.attach(file)
        self.assertGreater(await lease.keep(), 3500)
        self.assertEqual({row.path for row in await self.other.leases(name)}, {name, file})
        await made.revoke()
        with self.assertRaises(cistern.NotFound):
            await lease.keep()

    async def test_a_lock_passes_and_is_told_to_be_lost(self) -> None:
        job = path("job")
        async with self.client.lock(job, create=True) as first:
            waiting = asyncio.create_task(self.other._lock(job, False, None, False))
            while len(await self.client.locks(job)) < 2:
                await asyncio.sleep(0.01)
            self.assertTrue(await first.is_valid())
        second = await waiting
        self.assertGreater(second.token, first.token)
        await second.unlock()
        lost = asyncio.Event()
        lock = await self.client.lock(job, wait=PATIENCE)
        lock.on_lost(lambda _lock: lost.set())
        evict("one")
        async with asyncio.timeout(PATIENCE):
            await lost.wait()
            await lock.wait("lost")
        with self.assertRaises(cistern.StaleGuard):
            await self.client.write(job, "stale", guard=lock)
        with self.assertRaises(cistern.LockLost):
            await lock.check()

    async def test_a_task_that_is_cancelled_waits_for_no_lock(self) -> None:
        job = path("job")
        async with self.other.lock(job, create=True):
            waiting = asyncio.create_task(self.client._lock(job, False, None, False))
            while len(await self.other.locks(job)) < 2:
                await asyncio.sleep(0.01)
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting
            while len(await self.other.locks(job)) > 1:
                await asyncio.sleep(0.01)
        async with self.other.lock(job, wait=PATIENCE):
            pass

    async def test_changes_are_told_to_whoever_watches(self) -> None:
        group = path("group")
        await self.client.mkdir(group)
        async with asyncio.timeout(PATIENCE), await self.client.watch(group) as changes:
            first = await changes.next()
            async with await self.other.join(f"{group}/web1", "10.0.0.1:80"):
                change = await changes.next()
            assert first is not None and change is not None
            self.assertEqual((first.what, change.what), ("certain", "changed"))
            await self.other.rmdir(group)
            self.assertEqual([change.what async for change in changes][-1], "gone")


class Alike(unittest.TestCase):
    def test_both_clients_have_the_same_methods_with_the_same_parameters(self) -> None:
        def methods(of: type) -> dict[str, list[tuple[str, Any, Any]]]:
            public = [(name, method) for name, method in inspect.getmembers(of, inspect.isfunction) if not name.startswith("_")]
            # Of waits asyncio has time-outs of its own; its client is connected by a method.
            return {
                name: [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values() if each.name != "timeout"]
                for name, method in public
                if name != "connect"
            }

        for name in ("Client", "Lock", "Watch", "Member", "NamedLease", "Leadership", "Item", "Entered", "Run"):
            self.assertEqual(methods(getattr(client, name)), methods(getattr(aio, name)), name)


if __name__ == "__main__":
    unittest.main()
