"""Leases, locks and small files of a Cistern server, through the agent of this host.

`Client` is for threads, `cistern.aio.Client` for asyncio, `cistern.fence` for what a lock protects. The interface below is docs/api.md.
"""

from .client import Client, Lock, Member, NamedLease, Watch
from .errors import (
    Canceled,
    Disconnected,
    Error,
    Exists,
    InUse,
    LockLost,
    NotFound,
    OutcomeUnknown,
    StaleGuard,
    TimedOut,
    Unreachable,
    VersionChanged,
)
from .wire import Attributes, Change, Entry, LeaseFile

__all__ = [
    "Attributes",
    "Canceled",
    "Change",
    "Client",
    "Disconnected",
    "Entry",
    "Error",
    "Exists",
    "InUse",
    "LeaseFile",
    "Lock",
    "LockLost",
    "Member",
    "NamedLease",
    "NotFound",
    "OutcomeUnknown",
    "StaleGuard",
    "TimedOut",
    "Unreachable",
    "VersionChanged",
    "Watch",
]
