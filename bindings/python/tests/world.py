"""A server and two agents, which whoever runs the tests has started: their places are in the environment."""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable

#: The sockets of two agents of one server.
ONE, TWO = os.environ["CISTERN_TEST_ONE"], os.environ["CISTERN_TEST_TWO"]
#: Above what anything here takes.
PATIENCE = 30.0


def path(name: str) -> str:
    """A path that no other test uses."""
    return f"/{name}-{uuid.uuid4().hex[:8]}"


def evict(label: str) -> None:
    """Ends an agent's session at the server, at once."""
    cistern = [os.environ["CISTERN_TEST_PROGRAM"], "admin", "evict", label, "--control", os.environ["CISTERN_TEST_CONTROL"]]
    subprocess.run(cistern, check=True, stdout=subprocess.DEVNULL)


class StoppedServer:
    """The server does nothing as long as the block lasts."""

    def __enter__(self) -> None:
        os.kill(int(os.environ["CISTERN_TEST_SERVER"]), signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        os.kill(int(os.environ["CISTERN_TEST_SERVER"]), signal.SIGCONT)


def eventually(what: str, look: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < until, what
        time.sleep(0.01)
