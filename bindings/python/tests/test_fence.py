"""Guards: a holder that was overtaken while it was stopped changes nothing any more."""

import glob
import importlib
import io
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import unittest
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import cistern
from cistern import fence
from objects import Plain, Refused, Store
from world import ONE, PATIENCE, TWO, evict, path


class Overtaken(unittest.TestCase):
    """A holder that does not know that its lock went to another, as one that was stopped."""

    def setUp(self) -> None:
        self.dir = Path(self.enterContext(tempfile.TemporaryDirectory()))
        first, second = self.enterContext(cistern.Client(ONE)), self.enterContext(cistern.Client(TWO))
        job = path("job")
        self.stale = first.lock(job, create=True).token
        evict("one")
        self.newest = second.lock(job, wait=PATIENCE).token
        self.assertGreater(self.newest, self.stale)

    def test_a_stale_holder_does_not_write_the_file(self) -> None:
        file = self.dir / "report"
        fence.write(file, b"first", self.stale)
        fence.write(file, b"second", self.newest)
        with self.assertRaises(fence.StaleToken):
            fence.write(file, b"late", self.stale)
        fence.write(file, b"second again", self.newest)
        self.assertEqual(file.read_bytes(), b"second again")
        self.assertEqual(sorted(os.listdir(self.dir)), ["report", "report.fence", "report.fence-lock"])

    def test_a_stale_holder_does_not_write_the_file_by_the_command(self) -> None:
        file = self.dir / "report"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        for token, status in [(self.newest, 0), (self.stale, 3)]:
            command = [sys.executable, "-m", "cistern.fence", str(file)]
            done = subprocess.run(command, env=environment | {"CISTERN_TOKEN": str(token)}, input=f"{token}".encode(), capture_output=True)
            self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(file.read_text(), str(self.newest))

    def test_nobody_comes_between_the_check_and_the_change(self) -> None:
        file = self.dir / "report"
        claimed, order = threading.Event(), []

        def overtake() -> None:
            claimed.wait()
            fence.write(file, b"second", self.newest)
            order.append("second")

        overtaking = threading.Thread(target=overtake)
        overtaking.start()
        with fence.claim(file, self.stale):
            claimed.set()
            overtaking.join(0.1)
            order.append("first")
        overtaking.join(PATIENCE)
        self.assertEqual((order, file.read_bytes()), (["first", "second"], b"second"))

    def test_a_stale_holder_changes_no_row(self) -> None:
        database = sqlite3.connect(self.dir / "rows.db")
        self.addCleanup(database.close)
        database.execute(fence.TABLE)
        database.execute("CREATE TABLE report (text TEXT)")

        def report(text: str, token: int) -> None:
            with database:
                cursor = database.cursor()
                fence.claim_row(cursor, "report", token)
                cursor.execute("DELETE FROM report")
                cursor.execute("INSERT INTO report VALUES (?)", (text,))

        report("first", self.stale)
        report("second", self.newest)
        with self.assertRaises(fence.StaleToken):
            report("late", self.stale)
        report("second again", self.newest)
        self.assertEqual(database.execute("SELECT text FROM report").fetchall(), [("second again",)])

    def test_a_stale_holder_changes_no_row_of_postgresql(self) -> None:
        programs = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
        initdb = shutil.which("initdb") or (programs[-1] if programs else None)
        if initdb is None or shutil.which("psql") is None:
            self.skipTest("PostgreSQL is not installed")
        place = self.dir / "postgresql"
        place.mkdir()
        user: dict[str, Any] = {}
        if os.geteuid() == 0:
            # It does not run as root.
            user = {"user": 65534, "group": 65534, "extra_groups": []}
            os.chmod(self.dir, 0o711)
            os.chown(place, 65534, 65534)

        def run(*command: str) -> None:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **user)

        run(initdb, "-D", str(place), "-A", "trust", "-N", "--no-locale", "-U", "test")
        control = str(Path(initdb).with_name("pg_ctl"))
        run(control, "-D", str(place), "-w", "-l", str(place / "log"), "-o", f"-k {place} -c listen_addresses= -c fsync=off", "start")
        self.addCleanup(run, control, "-D", str(place), "-m", "immediate", "stop")

        def sql(script: str) -> str:
            psql = ["psql", "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-h", str(place), "-U", "test", "postgres"]
            return subprocess.run(psql, input=script, text=True, capture_output=True, check=True).stdout.strip()

        def report(text: str, token: int) -> str:
            statements: list[str] = []

            class Cursor:
                """What `claim_row` executes, as psql takes it; whether a row was changed psql finds itself."""

                rowcount = 1

                def execute(self, statement: str, values: tuple[object, ...]) -> None:
                    statements.append(statement % tuple(f"'{value}'" if isinstance(value, str) else value for value in values))

            fence.claim_row(Cursor(), "report", token, mark="%s")
            claim = ";\n".join(statements)
            decide = "SELECT :ROW_COUNT = 1 AS fresh \\gset\n\\if :fresh\n"
            return sql(f"BEGIN;\n{claim};\n{decide}UPDATE report SET text = '{text}';\nCOMMIT;\n\\else\nROLLBACK;\n\\echo stale\n\\endif\n")

        sql(f"{fence.TABLE}; CREATE TABLE report (text TEXT); INSERT INTO report VALUES ('')")
        answers = [report("first", self.stale), report("second", self.newest), report("late", self.stale), report("again", self.newest)]
        self.assertEqual(answers, ["", "", "stale", ""])
        self.assertEqual(sql("SELECT text FROM report"), "again")

    def test_a_request_of_a_stale_holder_is_refused(self) -> None:
        got: list[bytes] = []

        def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            got.append(environ["wsgi.input"].read())
            start_response("200 OK", [])
            return [b"done"]

        fenced = fence.Fenced(app, self.dir / "service")

        def ask(method: str, body: bytes, token: object) -> str:
            answered: list[str] = []
            environ = {"REQUEST_METHOD": method, "wsgi.input": io.BytesIO(body)} | ({} if token is None else {"HTTP_CISTERN_TOKEN": str(token)})
            list(fenced(environ, lambda status, _headers: answered.append(status)))
            return answered[0][:3]

        answers = [ask("PUT", b"1", self.stale), ask("PUT", b"2", self.newest), ask("PUT", b"late", self.stale), ask("GET", b"", None)]
        self.assertEqual(answers + [ask("PUT", b"none", None), ask("PUT", b"none", "-1")], ["200", "200", "412", "200", "428", "428"])
        self.assertEqual(got, [b"1", b"2", b""])

    def test_a_stale_holder_puts_no_object(self) -> None:
        with Store() as store:
            for name, s3 in clients(store.port):
                with self.subTest(name):
                    fence.put_object(s3, "bucket", name, b"first", self.stale)
                    fence.put_object(s3, "bucket", name, b"\xff second", self.newest)
                    with self.assertRaises(fence.StaleToken):
                        fence.put_object(s3, "bucket", name, b"late", self.stale)
                    fence.put_object(s3, "bucket", name, b"", self.newest)
                    self.assertEqual(fence.get_object(s3, "bucket", name), (b"", self.newest))
                    self.assertEqual(store.objects[f"/bucket/{name}"], f"Cistern-Token: {self.newest}\n".encode())

    def test_an_object_is_not_put_by_who_was_overtaken_between_the_look_and_the_put(self) -> None:
        with Store() as store:
            for name, s3 in clients(store.port):
                with self.subTest(name):

                    def overtake(name: str = name, s3: Any = s3) -> None:
                        # Contents that were there before: nothing else differs than the token.
                        fence.put_object(s3, "bucket", name, b"same", self.newest)

                    fence.put_object(s3, "bucket", name, b"same", self.stale)
                    store.meanwhile = overtake
                    with self.assertRaises(fence.StaleToken):
                        fence.put_object(s3, "bucket", name, b"late", self.stale)
                    self.assertEqual(fence.get_object(s3, "bucket", name), (b"same", self.newest))
                    # Nor is one made, if it was not there.
                    del store.objects[f"/bucket/{name}"]
                    store.meanwhile = overtake
                    with self.assertRaises(fence.StaleToken):
                        fence.put_object(s3, "bucket", name, b"late", self.stale)
                    # Who is newer than whoever came between goes on, also where the store asks for that.
                    store.objects.clear()
                    fence.put_object(s3, "bucket", name, b"first", self.stale)
                    store.meanwhile = partial(fence.put_object, s3, "bucket", name, b"between", self.stale)
                    fence.put_object(s3, "bucket", name, b"second", self.newest)
                    self.assertEqual(fence.get_object(s3, "bucket", name), (b"second", self.newest))

    def test_an_object_of_somebody_else_is_refused(self) -> None:
        with Store() as store:
            s3 = Plain(store.port)
            for contents in [b"", b"somebody else's", b"Cistern-Token: none\n"]:
                store.objects["/bucket/there"] = contents
                with self.assertRaisesRegex(ValueError, "bucket/there"):
                    fence.put_object(s3, "bucket", "there", b"first", self.newest)
                self.assertEqual(store.objects["/bucket/there"], contents)
            store.objects.clear()
            store.meanwhile = lambda: 500
            with self.assertRaises(Refused):
                fence.put_object(s3, "bucket", "new", b"first", self.newest)
            self.assertEqual(store.objects, {})


class Refusals(unittest.TestCase):
    """An object store that does not do what a guard needs is found out, and the guard ends."""

    def test_a_store_that_ignores_if_match_is_found_out_before_the_first_put(self) -> None:
        for knows in [(), ("If-None-Match",)]:
            with self.subTest(knows), Store(knows=knows) as store:
                for name, s3 in clients(store.port):
                    with self.assertRaisesRegex(RuntimeError, f"bucket/{name}: .* ignores If-Match"):
                        fence.put_object(s3, "bucket", name, b"first", 7)
                    self.assertEqual(store.objects[f"/bucket/{name}"], b"This store ignores If-Match: it protects nothing.\n")
                    with self.assertRaisesRegex(ValueError, f"bucket/{name}"):
                        fence.put_object(s3, "bucket", name, b"first", 7)

    def test_a_store_that_ignores_if_none_match_is_found_out_by_the_first_put(self) -> None:
        with Store(knows=("If-Match",)) as store:
            for name, s3 in clients(store.port):
                with self.subTest(name):
                    with self.assertRaisesRegex(RuntimeError, f"bucket/{name}: .* ignores If-None-Match"):
                        fence.put_object(s3, "bucket", name, b"first", 7)
                    self.assertEqual(fence.get_object(s3, "bucket", name), (b"first", 7))

    def test_the_look_for_if_none_match_leaves_what_came_between(self) -> None:
        with Store() as store:
            for name, s3 in clients(store.port):
                with self.subTest(name):
                    seen: list[bytes | None] = []

                    def between(name: str = name, s3: Any = s3, seen: list[bytes | None] = seen) -> None:
                        seen.append(store.objects.get(f"/bucket/{name}"))
                        if seen == [None]:
                            store.meanwhile = between
                        else:
                            fence.put_object(s3, "bucket", name, b"newer", 8)

                    store.meanwhile = between
                    fence.put_object(s3, "bucket", name, b"first", 7)
                    self.assertEqual(seen, [None, b"Cistern-Token: 7\nfirst"])
                    self.assertEqual(fence.get_object(s3, "bucket", name), (b"newer", 8))

    def test_a_bucket_that_is_missing_is_named(self) -> None:
        with Store() as store:

            def remove() -> None:
                store.buckets.clear()
                store.objects.clear()

            for name, s3 in clients(store.port):
                with self.subTest(name), no_pauses() as pauses:
                    with self.assertRaisesRegex(LookupError, f"elsewhere/{name}: .* no bucket 'elsewhere' .* create it"):
                        fence.put_object(s3, "elsewhere", name, b"first", 7)
                    self.assertEqual(pauses, [])
                    # Also one that goes while it is used.
                    fence.put_object(s3, "bucket", name, b"first", 7)
                    store.meanwhile = remove
                    with self.assertRaisesRegex(LookupError, "no bucket 'bucket'"):
                        fence.put_object(s3, "bucket", name, b"second", 7)
                    self.assertEqual(len(pauses), 1)
                    store.buckets.add("bucket")

    def test_a_store_that_goes_on_refusing_is_not_asked_for_ever(self) -> None:
        with Store() as store:
            for name, s3 in clients(store.port):
                for status, there in [(409, False), (412, False), (404, True), (409, True), (412, True)]:
                    with self.subTest(name, status=status, there=there), no_pauses() as pauses:
                        store.objects = {f"/bucket/{name}": b"Cistern-Token: 6\n"} if there else {}

                        def refuse(status: int = status) -> int:
                            store.meanwhile = refuse
                            return status

                        store.meanwhile = refuse
                        with self.assertRaisesRegex(RuntimeError, f"bucket/{name}: the store refused 10 puts, the last with {status}"):
                            fence.put_object(s3, "bucket", name, b"first", 7)
                        self.assertEqual(len(pauses), 9)
                        # One that stops is written to.
                        refusals = iter([status] * 9)

                        def relent() -> int | None:
                            store.meanwhile = relent
                            return next(refusals, None)

                        store.meanwhile = relent
                        fence.put_object(s3, "bucket", name, b"first", 7)
                        store.meanwhile = None
                        self.assertEqual(fence.get_object(s3, "bucket", name), (b"first", 7))


@contextmanager
def no_pauses() -> Iterator[list[float]]:
    """Pauses take no time; how long they would have been."""
    pauses: list[float] = []
    with mock.patch("time.sleep", pauses.append):
        yield pauses


def clients(port: int) -> list[tuple[str, Any]]:
    """What an object store is spoken to by: plain HTTP, and boto3 where it is installed."""
    found: list[tuple[str, Any]] = [("plain", Plain(port))]
    try:
        boto3 = importlib.import_module("boto3")
    except ImportError:
        print("not tried: boto3 is not installed", file=sys.stderr)
        return found
    config = importlib.import_module("botocore.config").Config(retries={"total_max_attempts": 1})
    place = {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": "none", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    return [*found, ("boto3", boto3.client("s3", config=config, **place))]


if __name__ == "__main__":
    unittest.main()
