"""An object store as S3 documents it, as far as a guard needs it: objects, ETags, conditional puts. And a client for where boto3 is not installed."""

import hashlib
import http.client
import http.server
import re
import threading
from collections.abc import Callable, Container
from types import TracebackType
from typing import Any, Self


#: Above what a test asks. Then a store answers 500, so that whoever would ask for ever fails.
REQUESTS = 2000


class Store:
    """Objects by path. An ETag is the MD5 of the contents: equal contents have equal ETags, whoever wrote them and when.

    A put with `If-Match` is carried out if the object has that ETag, else 412, or 404 if there is none; with `If-None-Match: *` if there is none, else
    412. The check and the put are one. A put that meets another's of the same object may be answered 409. Without the bucket, all is answered 404.
    """

    def __init__(self, *, knows: Container[str] = ("If-Match", "If-None-Match")) -> None:
        self.buckets = {"bucket"}
        self.objects: dict[str, bytes] = {}
        self._left = REQUESTS
        #: Called with the next put that has a condition that may be true, before it is looked at; its value is answered instead, if it is a status.
        self.meanwhile: Callable[[], int | None] | None = None
        self._mutex = threading.Lock()
        store = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if refusal := self._refusal():
                    return self._fail(*refusal)
                data = store.objects.get(self.path)
                if data is None:
                    return self._fail(404, "NoSuchKey")
                part, status = data, 200
                if wanted := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
                    part, status = data[int(wanted[1]) : int(wanted[2]) + 1], 206
                    if not part:
                        return self._fail(416, "InvalidRange")
                return self._answer(status, part, etag(data))

            def do_PUT(self) -> None:
                length = int(self.headers.get("X-Amz-Decoded-Content-Length") or self.headers["Content-Length"])
                data = self._body(length)
                if refusal := self._refusal():
                    return self._fail(*refusal)
                match, none_match = (self.headers.get(name) if name in knows else None for name in ("If-Match", "If-None-Match"))
                if (match or none_match) and match != '"none"':
                    meanwhile, store.meanwhile = store.meanwhile, None
                    if meanwhile and (status := meanwhile()):
                        return self._fail(status, "ConditionalRequestConflict")
                with store._mutex:
                    there = store.objects.get(self.path)
                    if match and there is None:
                        return self._fail(404, "NoSuchKey")
                    if there is not None and ((match and etag(there) != match) or none_match == "*"):
                        return self._fail(412, "PreconditionFailed")
                    store.objects[self.path] = data
                return self._answer(200, b"", etag(data))

            def _refusal(self) -> tuple[int, str] | None:
                with store._mutex:
                    store._left -= 1
                if store._left < 0:
                    return 500, "InternalError"
                return None if self.path.split("/")[1] in store.buckets else (404, "NoSuchBucket")

            def _body(self, length: int) -> bytes:
                if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
                    return self.rfile.read(length)
                data = b""
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    data += self.rfile.read(size)
                    self.rfile.readline()
                while self.rfile.readline().strip():
                    pass  # Checksums.
                return data

            def _fail(self, status: int, code: str) -> None:
                self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode(), None)

            def _answer(self, status: int, body: bytes, tag: str | None) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                if tag:
                    self.send_header("ETag", tag)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def etag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


class Refused(Exception):
    """As boto3 tells it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


class Body:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        return self._data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        pass


class Plain:
    """What the guard uses of a client of boto3, by HTTP alone."""

    def __init__(self, port: int) -> None:
        self._port = port

    def put_object(self, *, Bucket: str, Key: str, Body: bytes, **conditions: str) -> None:
        names = {"IfMatch": "If-Match", "IfNoneMatch": "If-None-Match"}
        self._ask("PUT", Bucket, Key, Body, {names[name]: value for name, value in conditions.items()})

    def get_object(self, *, Bucket: str, Key: str, Range: str | None = None) -> dict[str, Any]:
        return self._ask("GET", Bucket, Key, b"", {"Range": Range} if Range else {})

    def _ask(self, method: str, bucket: str, key: str, body: bytes, headers: dict[str, str]) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        try:
            connection.request(method, f"/{bucket}/{key}", body, headers)
            answer = connection.getresponse()
            data = answer.read()
            if answer.status >= 300:
                raise Refused(answer.status)
            return {"ETag": answer.getheader("ETag"), "Body": Body(data)}
        finally:
            connection.close()
