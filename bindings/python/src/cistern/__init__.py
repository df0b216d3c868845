"""Leases, locks and small files of a Cistern server, through the agent of this host.

`Client` is for threads, `cistern.aio.Client` for asyncio, `cistern.fence` for what a lock protects. The interface below is docs/api.md.
"""

from .client import Client, Entered, Item, Leadership, Lock, Member, NamedLease, Run, Watch
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
from .recipes import Leader
from .wire import Attributes, Change, Entry, LeaseFile

__all__ = [
    "Attributes",
    "Canceled",
    "Change",
    "Client",
    "Disconnected",
    "Entered",
    "Entry",
    "Error",
    "Exists",
    "InUse",
    "Item",
    "Leader",
    "Leadership",
    "LeaseFile",
    "Lock",
    "LockLost",
    "Member",
    "NamedLease",
    "NotFound",
    "OutcomeUnknown",
    "Run",
    "StaleGuard",
    "TimedOut",
    "Unreachable",
    "VersionChanged",
    "Watch",
]
