"""Recipes: what is promised when a participant ends, is evicted, or comes too late."""

import asyncio
import threading
import unittest
from collections.abc import Callable
from functools import partial
from typing import Any

import cistern
from cistern import aio
from world import ONE, PATIENCE, TWO, eventually, evict, path


def started(act: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """A thread, and what it came to."""
    came: list[Any] = []
    thread = threading.Thread(target=lambda: came.append(act()))
    thread.start()
    return thread, came


class Recipes(unittest.TestCase):
    def setUp(self) -> None:
        self.client = self.enterContext(cistern.Client(ONE))
        self.other = self.enterContext(cistern.Client(TWO))

    def waiters(self) -> int:
        return [row["state"] for row in self.other.locks()].count("waits")

    def test_a_leader_that_was_evicted_is_followed_and_names_itself_no_more(self) -> None:
        election = path("election")
        self.assertIsNone(self.client.leader(election))
        first = self.client.campaign(election, "one")
        seen = self.other.leader(election)
        assert seen is not None
        self.assertEqual((seen.value, seen.token), (b"one", first.token))
        with self.assertRaises(cistern.TimedOut):
            self.other.campaign(election, wait=0.1)
        candidate, led = started(lambda: self.other.campaign(election, "two", wait=PATIENCE))
        eventually("it waits", lambda: self.waiters() == 1)
        evict("one")
        candidate.join(PATIENCE)
        self.assertGreater(led[0].token, first.token)
        self.assertTrue(first.wait("lost", PATIENCE))
        seen = self.client.leader(election)
        assert seen is not None
        self.assertEqual((seen.value, seen.token), (b"two", led[0].token))
        led[0].unlock()
        self.assertIsNone(self.client.leader(election))
        # Whoever ends without a word is named no more.
        gone = cistern.Client(ONE)
        gone.campaign(election, "gone")
        gone.close()
        eventually("nobody leads", lambda: self.other.leader(election) is None)

    def test_slots_are_given_to_as_many_as_there_are(self) -> None:
        jobs = path("jobs")
        two = self.other.lock(jobs, slots=2)
        with self.client.lock(jobs, slots=2) as one:
            self.assertEqual({one.slot, two.slot}, {0, 1})
            with self.assertRaises(cistern.InUse):
                self.other.lock(jobs, slots=2, wait=0)
            with self.assertRaises(cistern.TimedOut):
                self.other.lock(jobs, slots=2, wait=0.1)
            with self.assertRaises(cistern.Error) as wrong:
                self.other.lock(jobs, slots=3)
            self.assertEqual(wrong.exception.code, "EINVAL")
            waiting, got = started(lambda: self.client.lock(jobs, slots=2, wait=PATIENCE))
            eventually("it waits", lambda: self.waiters() > 0)
            evict("two")
            waiting.join(PATIENCE)
            self.assertEqual(got[0].slot, two.slot)
            got[0].unlock()
            with self.assertRaises(cistern.LockLost):
                two.check()

    def test_an_item_is_delivered_until_it_is_done(self) -> None:
        queue = path("queue")
        with self.assertRaises(cistern.InUse):
            self.client.take(queue, wait=0)
        items: list[str | bytes] = ["a", b"\xff"]
        names = [self.client.put(queue, item) for item in items]
        with self.assertRaises(ZeroDivisionError), self.client.take(queue) as failed:
            raise ZeroDivisionError
        lost = self.client.take(queue)
        self.assertEqual((failed.data, lost.data, lost.name), (b"a", b"a", names[0]))
        evict("one")
        with self.other.take(queue, wait=PATIENCE) as again:
            self.assertEqual(again.data, b"a")
            self.assertGreater(again.token, lost.token)
            with self.assertRaises(cistern.StaleGuard):
                lost.done()
        with self.other.take(queue, wait=PATIENCE) as last:
            self.assertEqual(last.data, b"\xff")
        self.assertEqual([entry.name for entry in self.other.listdir(queue) if entry.name != ".take"], [])
        self.client.put(queue, "1", name="once")
        with self.assertRaises(cistern.VersionChanged):
            self.other.put(queue, "1", name="once")

    def test_no_change_of_a_counter_is_lost(self) -> None:
        counter = path("counter")
        self.assertEqual(self.client.count(counter), 0)

        def count(client: cistern.Client) -> None:
            for _ in range(10):
                client.add(counter)

        threads = [started(partial(count, client))[0] for client in (self.client, self.other)]
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual(self.client.count(counter), 20)
        self.assertFalse(self.client.compare_and_set(counter, 19, 0))
        self.assertTrue(self.other.compare_and_set(counter, 20, -1))
        self.assertEqual(self.client.add(counter, -1), -2)
        with self.assertRaises(cistern.NotFound):
            self.client.add(path("none") + "/n")
        self.client.write(counter, "seven")
        with self.assertRaises(cistern.Error) as wrong:
            self.client.count(counter)
        self.assertEqual(wrong.exception.code, "EINVAL")

    def test_all_enter_together_and_nobody_waits_for_one_that_has_gone(self) -> None:
        barrier = path("barrier")
        with self.assertRaises(cistern.TimedOut):
            self.client.enter(barrier, 2, wait=0.1)
        waiting, entered = started(lambda: self.client.enter(barrier, 2, wait=PATIENCE))
        gone = cistern.Client(TWO)
        self.assertEqual(gone.enter(barrier, 2, wait=PATIENCE).round, 1)
        waiting.join(PATIENCE)
        leaving, _ = started(entered[0].leave)
        self.assertTrue(leaving.is_alive())
        gone.close()
        leaving.join(PATIENCE)
        self.assertFalse(leaving.is_alive())

    def test_a_period_is_begun_once_and_again_only_if_it_was_lost(self) -> None:
        job = path("job")
        run = self.client.once(job, "2026-11-28")
        assert run is not None
        token = run.lock.token
        evict("one")
        self.assertIsNone(self.other.once(job, "2026-11-28", wait=PATIENCE))
        again = self.other.once(job, "2026-11-28", wait=PATIENCE, rerun_lost=True)
        assert again is not None
        with again as lock:
            self.assertGreater(lock.token, token)
        self.assertIsNone(self.other.once(job, "2026-11-28", wait=PATIENCE, rerun_lost=True))
        with self.assertRaises(cistern.Error) as older:
            self.client.once(job, "2026-11-27", wait=PATIENCE)
        self.assertEqual((older.exception.code, older.exception.exit), ("OLDER_PERIOD", 3))

    def test_members_are_listed_with_what_they_say(self) -> None:
        group = path("group")
        self.client.mkdir(group)
        self.client.write(f"{group}/plain", "none")
        with self.client.join(f"{group}/web1", "10.0.0.1"):
            self.assertEqual(self.other.members(group), {"web1": b"10.0.0.1"})
        self.assertEqual(self.other.members(group), {})


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def test_the_same_is_awaited(self) -> None:
        async with asyncio.timeout(2 * PATIENCE), aio.Client(ONE) as one, aio.Client(TWO) as two:
            election, queue, counter, barrier, job = map(path, ["election", "queue", "counter", "barrier", "job"])
            async with await one.campaign(election, "one"):
                seen = await two.leader(election)
                assert seen is not None
                self.assertEqual(seen.value, b"one")
            self.assertIsNone(await two.leader(election))
            async with one.lock(path("jobs"), slots=1) as lock:
                self.assertEqual(lock.slot, 0)
            taking = asyncio.create_task(two.take(queue))
            await one.put(queue, "item")
            async with await taking as item:
                self.assertEqual(item.data, b"item")
            self.assertEqual(await asyncio.gather(one.add(counter), one.add(counter)) and await two.count(counter), 2)
            self.assertTrue(await two.compare_and_set(counter, 2, 3))
            entered = await asyncio.gather(one.enter(barrier, 2), two.enter(barrier, 2))
            await asyncio.gather(*(each.leave() for each in entered))
            run = await one.once(job, "1")
            assert run is not None
            async with run as held:
                self.assertGreater(held.token, 0)
            self.assertIsNone(await two.once(job, "1"))
            # A task that is cancelled takes nothing.
            waiting = asyncio.create_task(two.take(queue))
            while not any(row["path"].endswith(".take") for row in await one.locks()):
                await asyncio.sleep(0.01)
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting
            await one.put(queue, "next")
            async with await one.take(queue, wait=PATIENCE) as item:
                self.assertEqual(item.data, b"next")


if __name__ == "__main__":
    unittest.main()
