"""Why a request failed."""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """A request failed. `code` is for programs, and `exit` the exit status of a command that fails so (docs/exit-statuses.md).

    Unless it is an `OutcomeUnknown`, nothing was changed.
    """

    def __init__(self, code: str, message: str, *, exit: int = 1, path: str | bytes | None = None, item: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.exit = exit
        self.path = path
        #: Of a batch, the item that failed, from 0.
        self.item = item


class NotFound(Error):
    """There is no such file or attribute."""


class Exists(Error):
    """The name is taken."""


class InUse(Error):
    """Somebody else holds the lock that was tried."""


class TimedOut(Error):
    """The lock was not granted, or the request did not end, in the time allowed."""


class Canceled(Error):
    """The request was given up."""


class VersionChanged(Error):
    """The file has another version than the change depends on."""


class StaleGuard(Error):
    """The lock that guards the change is not held any more under that token."""


class Unreachable(Error):
    """The server does not answer the agent."""


class OutcomeUnknown(Error):
    """The change was made once or not at all."""


class Disconnected(Error):
    """The agent does not answer, or has ended the connection. A change that was waited for was made once or not at all."""


class LockLost(Error):
    """The lock was lost while it was relied on."""


_BY_CODE: dict[str, type[Error]] = {
    "ENOENT": NotFound,
    "ESTALE": NotFound,
    "ENODATA": NotFound,
    "EEXIST": Exists,
    "EAGAIN": InUse,
    "TIMED_OUT": TimedOut,
    "ECANCELED": Canceled,
    "VERSION_CHANGED": VersionChanged,
    "STALE_GUARD": StaleGuard,
    "UNREACHABLE": Unreachable,
    "OUTCOME_UNKNOWN": OutcomeUnknown,
    "NO_AGENT": Disconnected,
}


def of(error: dict[str, Any], path: str | bytes | None = None) -> Error:
    """The exception for an error of the agent."""
    code = str(error.get("code", "INTERNAL"))
    kind = _BY_CODE.get(code, Error)
    return kind(code, str(error.get("message", "")), exit=int(error.get("exit", 1)), path=path, item=error.get("item"))
