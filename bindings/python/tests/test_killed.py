"""Recipes whose participant is a process that is killed (SIGKILL) or stopped (SIGSTOP), alone or with its host's agent: what the next one gets, and when."""

import os
import signal
import subprocess
import sys
import time
import unittest

import cistern
from world import MORTAL, ONE, PATIENCE, TWO, Stopped, path, process_of

# Leads, has a slot, works on an item, holds a lock. At each line it says what it still has, and what becomes of a change under its lock.
HOLDER = """
import sys
import cistern

election, jobs, queue, job, report = sys.argv[1:]
client = cistern.Client()
held = [client.campaign(election, "holder"), client.lock(jobs, slots=1), client.take(queue), client.lock(job, create=True)]
print(*(lock.token for lock in held), flush=True)
for line in sys.stdin:
    said = ["valid" if lock.is_valid() else "lost" for lock in held]
    try:
        client.write(report, "written", guard=held[-1])
        said.append("written")
    except cistern.Error as error:
        said.append(error.code)
    print(*said, flush=True)
"""


class Holder:
    """A program that takes part in four recipes, by an agent."""

    def __init__(self, agent: str) -> None:
        self.names = [path(name) for name in ("election", "jobs", "queue", "job", "report")]
        command = [sys.executable, "-W", "error", "-c", HOLDER, *self.names]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env={**os.environ, "CISTERN_AGENT": agent}, stdin=pipe, stdout=pipe, text=True)

    def __enter__(self) -> "Holder":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def told(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def asked(self) -> list[str]:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.told()


class Killed(unittest.TestCase):
    def setUp(self) -> None:
        self.other = self.enterContext(cistern.Client(TWO))

    def held(self, agent: str) -> tuple[Holder, list[int]]:
        """A program that has what it wants, and under which tokens."""
        holder = Holder(agent)
        self.other.put(holder.names[2], "item")
        self.enterContext(holder)
        tokens = [int(token) for token in holder.told()]
        self.assertEqual(len(tokens), 4)
        return holder, tokens

    def take_all(self, holder: Holder, wait: float) -> list[cistern.Lock]:
        election, jobs, queue, job, _ = holder.names
        until = time.monotonic() + wait

        def left() -> float:
            return max(until - time.monotonic(), 0)

        took = [self.other.campaign(election, "next", wait=left()), self.other.lock(jobs, slots=1, wait=left())]
        return [*took, self.other.take(queue, wait=left()), self.other.lock(job, wait=left())]

    def follows(self, holder: Holder, tokens: list[int]) -> None:
        """All of it is the next one's, under larger tokens, and the item is delivered again."""
        took = self.take_all(holder, PATIENCE)
        self.assertTrue(all(lock.token > token for lock, token in zip(took, tokens, strict=True)), (took, tokens))
        seen = self.other.leader(holder.names[0])
        assert seen is not None
        self.assertEqual((seen.value, seen.token), (b"next", took[0].token))
        item = took[2]
        assert isinstance(item, cistern.Item)
        self.assertEqual(item.data, b"item")
        item.done()
        for lock in (took[0], took[1], took[3]):
            lock.check()
            lock.unlock()

    def test_a_process_that_is_killed_is_followed_at_once(self) -> None:
        beside = self.enterContext(cistern.Client(ONE)).lock(path("beside"), create=True)
        holder, tokens = self.held(ONE)
        holder.process.send_signal(signal.SIGKILL)
        self.follows(holder, tokens)
        # Its agent has given back what it held, and nothing else: no lease had to end for that.
        self.assertTrue(beside.is_valid())
        self.assertIsNone(self.other.leader(holder.names[0]))

    def test_a_process_that_is_stopped_keeps_what_it_has_while_its_agent_renews(self) -> None:
        holder, _ = self.held(ONE)
        election, jobs, queue, job, _ = holder.names
        with Stopped(holder.process.pid):
            # For longer than the lease.
            with self.assertRaises(cistern.TimedOut):
                self.other.lock(job, wait=2.5)
            with self.assertRaises(cistern.InUse):
                self.other.campaign(election, wait=0)
            with self.assertRaises(cistern.InUse):
                self.other.lock(jobs, slots=1, wait=0)
            with self.assertRaises(cistern.InUse):
                self.other.take(queue, wait=0)
        self.assertEqual(holder.asked(), ["valid"] * 4 + ["written"])

    def test_a_host_that_stands_still_is_followed_and_finds_its_locks_lost(self) -> None:
        holder, tokens = self.held(ONE)
        with Stopped(process_of("ONE")), Stopped(holder.process.pid):
            self.follows(holder, tokens)
        # At once when it goes on.
        *locks, written = holder.asked()
        self.assertEqual(locks, ["lost"] * 4)
        self.assertNotEqual(written, "written")
        with self.assertRaises(cistern.NotFound):
            self.other.stat(holder.names[-1])

    def test_a_host_that_is_killed_is_followed_when_its_lease_is_over(self) -> None:
        holder, tokens = self.held(MORTAL)
        os.kill(process_of("MORTAL"), signal.SIGKILL)
        holder.process.send_signal(signal.SIGKILL)
        begun = time.monotonic()
        self.follows(holder, tokens)
        self.assertGreater(time.monotonic() - begun, 0.9, "the lease is 1 s")


if __name__ == "__main__":
    unittest.main()
