"""A server and two agents, which whoever runs the tests has started: their places are in the environment."""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable

#: The sockets of two agents of one server, and of a third one that a test may kill.
ONE, TWO, MORTAL = (os.environ[f"CISTERN_TEST_{name}"] for name in ("ONE", "TWO", "MORTAL"))
#: Above what anything here takes.
PATIENCE = 30.0


def path(name: str) -> str:
    """A path that no other test uses."""
    return f"/{name}-{uuid.uuid4().hex[:8]}"


def evict(label: str) -> None:
    """Ends an agent's session at the server, at once."""
    cistern = [os.environ["CISTERN_TEST_PROGRAM"], "admin", "evict", label, "--control", os.environ["CISTERN_TEST_CONTROL"]]
    subprocess.run(cistern, check=True, stdout=subprocess.DEVNULL)


class Stopped:
    """A process does nothing as long as the block lasts."""

    def __init__(self, process: int) -> None:
        self.process = process

    def __enter__(self) -> None:
        os.kill(self.process, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        os.kill(self.process, signal.SIGCONT)


def process_of(name: str) -> int:
    """The server, or the agent ONE or MORTAL."""
    return int(os.environ[f"CISTERN_TEST_{name}_PROCESS"])


def eventually(what: str, look: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < until, what
        time.sleep(0.01)
