"""Guards for what a lock protects: a change is made only if its token is the newest that was seen (docs/fencing.md).

A command, too: `python3 -m cistern.fence FILE < contents` writes a file under the token of `CISTERN_TOKEN`, which `cistern lock` sets.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class StaleToken(Exception):
    """A newer holder of the lock has been here: the change was not made."""

    def __init__(self, token: int, newest: int | None = None) -> None:
        seen = "a newer one" if newest is None else str(newest)
        super().__init__(f"token {token} is stale: {seen} has been seen; nothing was changed")
        self.token = token
        self.newest = newest


@contextmanager
def claim(place: str | os.PathLike[str], token: int) -> Iterator[None]:
    """Lets the block run if no larger token has claimed the place before, and nobody else meanwhile; otherwise `StaleToken`.

    The place is two files, `PLACE.fence` with the newest token and `PLACE.fence-lock`. It may be on a file system that several hosts share, if
    flock(2) holds between them there (NFS version 4, CephFS, GFS2, OCFS2). Within the block the same place cannot be claimed again: it would wait
    for itself.
    """
    place = os.fspath(place)
    with open(f"{place}.fence-lock", "ab") as mutex:
        fcntl.flock(mutex, fcntl.LOCK_EX)
        try:
            with open(f"{place}.fence", encoding="ascii") as seen:
                newest = int(seen.read())
        except FileNotFoundError:
            newest = 0
        if token < newest:
            raise StaleToken(token, newest)
        if token > newest:
            # Before the change: whoever is older is refused from now on, also if this process ends here.
            _replace(f"{place}.fence", f"{token}\n".encode())
        yield


def write(path: str | os.PathLike[str], data: bytes, token: int) -> None:
    """Replaces a file's contents as one, durably, if no larger token has; otherwise `StaleToken`."""
    with claim(path, token):
        _replace(os.fspath(path), data)


def _replace(path: str, data: bytes) -> None:
    directory = os.path.dirname(path) or "."
    handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=directory)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            try:
                os.fchmod(file.fileno(), os.stat(path).st_mode & 0o7777)
            except FileNotFoundError:
                os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    parent = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


#: The table that `claim_row` uses.
TABLE = "CREATE TABLE IF NOT EXISTS fence (name TEXT PRIMARY KEY, token BIGINT NOT NULL)"


def claim_row(cursor: Any, name: str, token: int, *, mark: str = "?") -> None:
    """Claims a name within the transaction of `cursor` (DB-API), whose changes are then made or not with it; otherwise `StaleToken`.

    `mark` is the driver's: `?` of sqlite3, `%s` of psycopg. Until the transaction ends, others with the name wait.
    """
    cursor.execute(f"INSERT INTO fence (name, token) VALUES ({mark}, 0) ON CONFLICT (name) DO NOTHING", (name,))
    cursor.execute(f"UPDATE fence SET token = {mark} WHERE name = {mark} AND token <= {mark}", (token, name, token))
    if cursor.rowcount != 1:
        raise StaleToken(token)


#: The header of a request that is made under a lock: its token, in decimal.
HEADER = "Cistern-Token"


class Fenced:
    """WSGI middleware: a request that changes something is handled only under the newest token.

    Without the header it is answered 428, with a stale token 412. Requests with a token are handled one at a time, so that none is overtaken
    between the check and its work.
    """

    def __init__(self, app: Callable[..., Iterable[bytes]], place: str | os.PathLike[str]) -> None:
        self._app, self._place = app, place

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD", "OPTIONS"):
            return self._app(environ, start_response)
        token = environ.get("HTTP_CISTERN_TOKEN", "")
        if not (token.isascii() and token.isdigit()):
            return _refuse(start_response, "428 Precondition Required", f"{HEADER}: the token of a lock is required\n")
        try:
            with claim(self._place, int(token)):
                return list(self._app(environ, start_response))
        except StaleToken as stale:
            return _refuse(start_response, "412 Precondition Failed", f"{stale}\n")


def _refuse(start_response: Callable[..., Any], status: str, why: str) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "text/plain")])
    return [why.encode()]


_FIRST_LINE = re.compile(rb"%s: (\d{1,20})\n" % HEADER.encode())

#: How often an object is looked at and put in one call. Who holds the lock meets few others: those that it has overtaken, and its own threads.
_TRIES = 10


def put_object(s3: Any, bucket: str, key: str, data: bytes, token: int) -> None:
    """Replaces an object of an S3-compatible store, if no larger token has; otherwise `StaleToken`. `s3` is a client of boto3.

    The object begins with a line that has the token. It has to be in the contents, because S3 compares ETags, which follow from the contents
    alone: what a newer holder wrote with equal contents would pass for what an older one has read.

    Without the bucket it is a `LookupError`; if the store ignores conditions, or refuses each of several tries, a `RuntimeError`; if the object
    was not written by this function, a `ValueError`. Other errors are the client's.
    """
    _teach_conditions(s3)
    body = f"{HEADER}: {token}\n".encode() + data
    for tried in range(1, _TRIES + 1):
        newest, etag = _claimed(s3, bucket, key)
        if token < newest:
            raise StaleToken(token, newest)
        try:
            if etag is None:
                _make(s3, bucket, key, body)
            else:
                s3.put_object(Bucket=bucket, Key=key, Body=body, IfMatch=etag)
            return
        except Exception as error:
            status = _status(error)
            if status == 404 and etag is None:
                # An object that is missing is no reason to refuse this put.
                why = f"the store has no bucket {bucket!r} (404); create it, or correct its name or the client's endpoint"
                raise LookupError(f"{bucket}/{key}: {why}") from error
            if status not in (404, 409, 412):
                raise
            if tried == _TRIES:
                why = f"the store refused {tried} puts, the last with {status}, and no newer token is there; find out who else writes the object"
                raise RuntimeError(f"{bucket}/{key}: {why}, or why the store's conditions fail") from error
        # Somebody came between, and is looked at.
        time.sleep(0.05 * tried)


#: Conditions of a put as boto3 names them, and as S3 does.
_CONDITIONS = {"IfMatch": "If-Match", "IfNoneMatch": "If-None-Match"}


def _teach_conditions(s3: Any) -> None:
    """boto3 before 1.35.69, as in Debian 12, refuses a put with conditions that it does not know: they go past that check into the headers."""
    meta = getattr(s3, "meta", None)
    if meta is None or "IfMatch" in meta.service_model.operation_model("PutObject").input_shape.members:
        return
    # Once for each client: what has an id that is known is not registered again.
    meta.events.register("before-parameter-build.s3.PutObject", _keep_conditions, unique_id="cistern-conditions-kept")
    meta.events.register("before-call.s3.PutObject", _add_conditions, unique_id="cistern-conditions-added")


def _keep_conditions(params: dict[str, Any], context: dict[str, Any], **_: object) -> None:
    context["cistern_conditions"] = {header: params.pop(name) for name, header in _CONDITIONS.items() if name in params}


def _add_conditions(params: dict[str, Any], context: dict[str, Any], **_: object) -> None:
    params["headers"].update(context.get("cistern_conditions", {}))


def get_object(s3: Any, bucket: str, key: str) -> tuple[bytes, int]:
    """What `put_object` wrote last, and under which token."""
    with s3.get_object(Bucket=bucket, Key=key)["Body"] as body:
        contents = bytes(body.read())
    token = _token(contents, bucket, key)
    return contents[contents.index(b"\n") + 1 :], token


def _claimed(s3: Any, bucket: str, key: str) -> tuple[int, str | None]:
    """The token of an object, and its ETag; 0 and None: there is none."""
    try:
        found = s3.get_object(Bucket=bucket, Key=key, Range="bytes=0-63")
    except Exception as error:
        if _status(error) == 404:
            return 0, None
        if _status(error) == 416:
            raise _not_guarded(bucket, key) from None
        raise
    with found["Body"] as body:
        return _token(bytes(body.read()), bucket, key), str(found["ETag"])


def _token(contents: bytes, bucket: str, key: str) -> int:
    line = _FIRST_LINE.match(contents)
    if line is None:
        raise _not_guarded(bucket, key)
    return int(line[1])


def _not_guarded(bucket: str, key: str) -> ValueError:
    return ValueError(f"{bucket}/{key}: it does not begin with a line {HEADER!r}, as objects do that are written by cistern.fence; remove it first")


def _make(s3: Any, bucket: str, key: str, body: bytes) -> None:
    """The first put of an object, between two with a false condition: there are stores that do not know conditions, and put it.

    `If-None-Match: *` is false only when there is an object. It is tried with the same body, so that it changes nothing if it is carried out.
    """
    if _carried_out(s3, bucket, key, b"This store ignores If-Match: it protects nothing.\n", IfMatch='"none"'):
        raise RuntimeError(f"{bucket}/{key}: the store ignores If-Match, so that no put can be guarded; the object says so, remove it")
    s3.put_object(Bucket=bucket, Key=key, Body=body, IfNoneMatch="*")
    if _carried_out(s3, bucket, key, body, IfNoneMatch="*"):
        why = "the store ignores If-None-Match, so that no first put can be guarded; the object was put, perhaps over that of a newer holder"
        raise RuntimeError(f"{bucket}/{key}: {why}")


def _carried_out(s3: Any, bucket: str, key: str, body: bytes, **false: str) -> bool:
    try:
        s3.put_object(Bucket=bucket, Key=key, Body=body, **false)
    except Exception as error:
        if _status(error) in (404, 409, 412):
            return False
        raise
    return True


def _status(error: Exception) -> int | None:
    response = getattr(error, "response", None) or {}
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return int(status) if status is not None else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m cistern.fence", description="Replace a file by standard input, if the token is the newest.")
    parser.add_argument("file")
    parser.add_argument("--token", type=int, default=os.environ.get("CISTERN_TOKEN"), help="default: CISTERN_TOKEN")
    args = parser.parse_args()
    if args.token is None:
        parser.error("no token: run it by `cistern lock`, or give --token")
    try:
        write(args.file, sys.stdin.buffer.read(), args.token)
    except StaleToken as stale:
        print(f"{args.file}: {stale}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
