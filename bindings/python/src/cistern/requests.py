"""The fields of requests and what is made of their answers: what both clients say, once.

Each function gives the operation, its fields, and what makes a value of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from .wire import Answer, Attributes, Data, Entry, LeaseFile, Locked, Path, decoded, encoded, millis, octal, text

T = TypeVar("T")
Request = tuple[str, dict[str, Any], Callable[[Answer], T]]


def _attributes(answer: Answer) -> Attributes:
    return Attributes.of(answer["attr"])


def _nothing(_answer: Answer) -> None:
    return None


def stat(path: Path, follow: bool) -> Request[Attributes]:
    return "stat", {"path": encoded(path), "follow": follow}, _attributes


def listing(path: Path, detail: bool) -> Request[list[Entry]]:
    return "list", {"path": encoded(path), "detail": detail}, lambda answer: [Entry.of(row) for row in answer["listing"]]


def read(path: Path) -> Request[bytes]:
    return "read", {"path": encoded(path)}, lambda answer: decoded(answer["data"]["data"])


def read_attributes(path: Path) -> Request[tuple[bytes, Attributes]]:
    return "read", {"path": encoded(path)}, lambda answer: (decoded(answer["data"]["data"]), Attributes.of(answer["data"]["attr"]))


def read_version(path: Path) -> Request[tuple[bytes, int]]:
    return "read", {"path": encoded(path)}, lambda answer: (decoded(answer["data"]["data"]), answer["data"]["attr"]["version"])


def read_link(path: Path) -> Request[Path]:
    return "read_link", {"path": encoded(path)}, lambda answer: text(answer["link"])


def write(path: Path, data: Data, mode: int | None, if_version: int | None, guard: int | None) -> Request[Attributes]:
    fields = {"path": encoded(path), "data": encoded(data), "mode": octal(mode), "if_version": if_version, "guard": guard}
    return "put", fields, _attributes


def create(path: Path, exclusive: bool, mode: int | None, guard: int | None) -> Request[Attributes]:
    return "create", {"path": encoded(path), "exclusive": exclusive, "mode": octal(mode), "guard": guard}, _attributes


def mkdir(path: Path, mode: int | None, guard: int | None) -> Request[Attributes]:
    return "mkdir", {"path": encoded(path), "mode": octal(mode), "guard": guard}, _attributes


def symlink(target: Path, path: Path, guard: int | None) -> Request[Attributes]:
    return "symlink", {"target": encoded(target), "path": encoded(path), "guard": guard}, _attributes


def link(existing: Path, path: Path, guard: int | None) -> Request[Attributes]:
    return "link", {"existing": encoded(existing), "path": encoded(path), "guard": guard}, _attributes


def remove(path: Path, force: bool, guard: int | None) -> Request[None]:
    return "unlink", {"path": encoded(path), "force": force, "guard": guard}, _nothing


def rmdir(path: Path, guard: int | None) -> Request[None]:
    return "rmdir", {"path": encoded(path), "guard": guard}, _nothing


def rename(source: Path, target: Path, rule: str, force: bool, guard: int | None) -> Request[None]:
    return "rename", {"from": encoded(source), "to": encoded(target), "rule": rule, "force": force, "guard": guard}, _nothing


def set_attributes(path: Path, mode: int | None, size: int | None, mtime_ns: int | None, guard: int | None) -> Request[Attributes]:
    fields = {"path": encoded(path), "mode": octal(mode), "size": size, "mtime_ns": mtime_ns, "guard": guard}
    return "set_attr", fields, _attributes


def get_xattr(path: Path, name: Path) -> Request[bytes]:
    return "get_xattr", {"path": encoded(path), "name": encoded(name)}, lambda answer: decoded(answer["xattr"]["value"])


def list_xattr(path: Path) -> Request[list[Path]]:
    return "list_xattr", {"path": encoded(path)}, lambda answer: [text(name) for name in answer["xattrs"]["names"]]


def set_xattr(path: Path, name: Path, value: Data, rule: str, guard: int | None) -> Request[Attributes]:
    fields = {"path": encoded(path), "name": encoded(name), "value": encoded(value), "rule": rule, "guard": guard}
    return "set_xattr", fields, _attributes


def remove_xattr(path: Path, name: Path, guard: int | None) -> Request[Attributes]:
    return "remove_xattr", {"path": encoded(path), "name": encoded(name), "guard": guard}, _attributes


def batch(items: Sequence[Mapping[str, Any]], if_versions: Mapping[Path, int] | None, guard: int | None) -> Request[list[int]]:
    coded = [{name: encoded(value) if isinstance(value, (str, bytes)) and name not in ("op", "rule", "mode") else value
              for name, value in item.items()} for item in items]
    expected = [{"path": encoded(path), "version": version} for path, version in (if_versions or {}).items()]
    fields = {"items": coded, "if_versions": expected or None, "guard": guard}
    return "batch", fields, lambda answer: [done["version"] for done in answer["batched"]]


def _locked(answer: Answer) -> Locked:
    return Locked.of(answer["locked"])


def lock(path: Path, shared: bool, wait: float | None, slots: int | None) -> Request[Locked]:
    return "lock", {"path": encoded(path), "shared": shared, "slots": slots, "wait_ms": millis(wait), "events": True}, _locked


def _held(answer: Answer) -> Answer:
    held: Answer = answer["hold"]
    return held


def hold(number: int) -> Request[Answer]:
    return "hold", {"hold": number}, _held


def take(path: Path, wait: float | None) -> Request[Locked]:
    return "take", {"path": encoded(path), "wait_ms": millis(wait), "events": True}, _locked


def enter(path: Path, parties: int, wait: float | None) -> Request[tuple[int, int]]:
    """The hold, and the round."""
    fields = {"path": encoded(path), "parties": parties, "wait_ms": millis(wait)}
    return "enter", fields, lambda answer: (answer["entered"]["hold"], answer["entered"]["round"])


def locks(path: Path | None) -> Request[list[Answer]]:
    return "locks", {"path": None if path is None else encoded(path)}, lambda answer: list(answer["locks"])


def join(path: Path, data: Data, mode: int | None, guard: int | None) -> Request[int]:
    fields = {"path": encoded(path), "data": encoded(data), "mode": octal(mode), "guard": guard}
    return "join", fields, lambda answer: int(answer["joined"]["object"])


def create_lease(path: Path, ttl: float, secret: str | None, data: Data | None, mode: int | None) -> Request[str]:
    fields = {"path": encoded(path), "ttl_ms": millis(ttl), "secret": secret, "data": None if data is None else encoded(data), "mode": octal(mode)}
    return "lease_create", fields, lambda answer: str(answer["new_lease"]["secret"])


def attach(path: Path, lease: Path, secret: str) -> Request[Attributes]:
    return "lease_attach", {"path": encoded(path), "lease": encoded(lease), "secret": secret}, _attributes


def keep_lease(lease: Path, secret: str) -> Request[float]:
    return "lease_keep", {"lease": encoded(lease), "secret": secret}, lambda answer: float(answer["kept_lease"]["left_ms"]) / 1e3


def revoke_lease(lease: Path) -> Request[None]:
    return "lease_revoke", {"lease": encoded(lease)}, _nothing


def leases(lease: Path | None) -> Request[list[LeaseFile]]:
    fields = {"lease": None if lease is None else encoded(lease)}
    return "leases", fields, lambda answer: [LeaseFile.of(row) for row in answer["leases"]]
