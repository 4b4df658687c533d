"""The server of `costar explore`: one page and its questions, for the holder of a token on this machine.

Threads read requests and refuse what is not the page's; the main thread alone computes, one answer at a time, so that
Ctrl-C ends even a long search. Nothing that a client sends is used as a path.
"""

import errno
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Empty, Full, Queue
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from costar_cli.errors import CostarError, DataError, MismatchError, Termination, UsageError, as_costar_error, cut
from costar_cli.plans.untrusted import JsonObject, parse_json
from costar_cli.reporting.text import dump_json

LOCAL: Final = "127.0.0.1"
TOKEN_HEADER: Final = "X-Costar-Token"  # noqa: S105 - its name: other pages cannot send it without being asked first
MOST_BYTES: Final = 65_536  # of a question
MOST_DISCARDED: Final = 1_048_576  # of a refused body: a client that still writes would not read why
MOST_CONNECTIONS: Final = 32
MOST_WAITING: Final = 4  # questions; the page sends one at a time
PATIENCE_S: Final = 10.0  # with a client that says nothing
LONGEST_S: Final = 600.0  # of an answer, after which the page is no longer waiting
POLL_S: Final = 0.2  # how often the main thread looks for a signal
PER_S: Final = 30.0  # requests, of the page and of strangers alike
BURST: Final = 60
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
CLIENTS_FAULT: Final = (UsageError, DataError, MismatchError)

Work = Callable[[JsonObject], "dict[str, Any] | str"]


class Bucket:
    """Lets `burst` requests through at once, and `per_s` in every second after that."""

    def __init__(self, per_s: float = PER_S, burst: int = BURST) -> None:
        self._per_s, self._most, self._left, self._at = per_s, burst, float(burst), time.monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Return whether one more request may pass."""
        with self._lock:
            now = time.monotonic()
            self._left = min(self._most, self._left + (now - self._at) * self._per_s)
            self._at = now
            if self._left < 1:
                return False
            self._left -= 1
            return True


class ExploreServer(ThreadingHTTPServer):
    """Serves a page and answers its questions until a signal comes.

    Args:
        port: of 127.0.0.1; 0 for a free one. It is taken at once, and served by `run`.

    Raises:
        UsageError: the port is taken, or needs other rights.
    """

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS
    block_on_close = False
    allow_reuse_address = os.name == "posix"  # elsewhere another process could take the port over

    def __init__(self, port: int) -> None:
        self.page, self.headers, self.questions = b"", HEADERS, dict[str, Work]()
        self.token = secrets.token_urlsafe(32)
        self.own, self.strangers = Bucket(), Bucket()
        self._jobs: Queue[tuple[Future[dict[str, Any] | str], Work, JsonObject]] = Queue(MOST_WAITING)
        self._places = threading.Semaphore(MOST_CONNECTIONS)
        try:
            super().__init__((LOCAL, port), _Handler)
        except (OSError, OverflowError) as error:
            why = {errno.EADDRINUSE: "is in use", errno.EACCES: "needs the rights of an administrator"}
            problem = f"port {port} {why.get(getattr(error, 'errno', None) or 0, f'cannot be used: {error}')}"
            raise UsageError(problem, where="--port", fix="leave --port out for a free one") from None
        self.hosts = {f"{name}:{self.server_port}" for name in (LOCAL, "localhost")}

    @property
    def address(self) -> str:
        """Return the address of the page, with its token."""
        return f"http://{LOCAL}:{self.server_port}/?token={self.token}"

    def run(self, page: str, policy: str, questions: Mapping[str, Work]) -> None:
        """Answer until a signal raises `KeyboardInterrupt`; the port is free afterwards.

        Args:
            page: the HTML.
            policy: its Content-Security-Policy.
            questions: what answers each question of the page, by name: with a document, or the text of another page.
        """
        self.page, self.questions = page.encode(), dict(questions)
        self.headers = HEADERS | {"Content-Security-Policy": f"{policy}; frame-ancestors 'none'"}
        threading.Thread(target=self.serve_forever, args=(POLL_S,), daemon=True).start()
        try:
            while True:
                Termination.stop_if_signalled()
                with suppress(Empty):
                    future, work, question = self._jobs.get(timeout=POLL_S)
                    try:
                        future.set_result(work(question))
                    except Exception as error:  # whatever it is, the page says it, and the next question is answered
                        Termination.stop_if_signalled()
                        future.set_exception(as_costar_error(error))
                    del future, work, question  # a page may be large, and the next question far
        finally:
            self.shutdown()
            self.server_close()

    def ask(self, work: Work, question: JsonObject) -> "Future[dict[str, Any] | str]":
        """Have the main thread answer a question.

        Raises:
            Full: too many wait already.
        """
        future: Future[dict[str, Any] | str] = Future()
        self._jobs.put_nowait((future, work, question))
        return future

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ANN401, ARG002 - the base class's own
        """Return whether there is a place for another connection."""
        return self._places.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - likewise
        """Serve a connection, and give its place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - likewise
        """Say nothing of clients that leave early."""


class RefusedError(Exception):
    """A request that is not answered: its status, and why."""

    def __init__(self, status: HTTPStatus, problem: str) -> None:
        super().__init__(problem)
        self.status, self.problem = status, problem


class _Handler(BaseHTTPRequestHandler):
    server: ExploreServer
    timeout = PATIENCE_S
    server_version, sys_version = "costar", ""

    def do_GET(self) -> None:
        """Send the page."""
        try:
            where = urlsplit(self.path)
            self._admit(parse_qs(where.query).get("token", [""])[0])
            if where.path != "/":
                raise RefusedError(HTTPStatus.NOT_FOUND, "there is one page, at /")
            self._send(HTTPStatus.OK, self.server.page, "text/html")
        except (RefusedError, ValueError) as error:
            self._refuse(error)

    def do_POST(self) -> None:
        """Answer a question of the page."""
        try:
            text = self.headers.get("Content-Length", "")
            if not text.isdecimal() or not text.isascii() or len(text) > 12 or self.headers.get("Transfer-Encoding"):
                raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "say how long the question is")
            length = int(text)
            try:
                self._admit(self.headers.get(TOKEN_HEADER, ""))
                work = self.server.questions.get(self.path.removeprefix("/api/")) if self.path[:5] == "/api/" else None
                if work is None:
                    raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such question")
                if self.headers.get_content_type() != "application/json":
                    raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "questions are JSON")
                if length > MOST_BYTES:
                    problem = f"a question has at most {MOST_BYTES:,} bytes"
                    raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, problem)
            except RefusedError:
                self._read(min(length, MOST_DISCARDED))
                raise
            question = parse_json(self._read(length), where="the question")
            if not isinstance(question, JsonObject):
                raise UsageError("a question is a JSON object", where="the question")
            begun = time.perf_counter()
            answer = self.server.ask(work, question).result(LONGEST_S)
            took = {"Server-Timing": f"answer;dur={1000 * (time.perf_counter() - begun):.1f}"}
            if isinstance(answer, str):
                self._send(HTTPStatus.OK, answer.encode(), "text/html", took)
            else:
                self._send(HTTPStatus.OK, dump_json(answer).encode(), "application/json", took)
        except (CostarError, RefusedError, Full, TimeoutError, ValueError) as error:
            self._refuse(error)

    def _admit(self, token: str) -> None:
        """See that a request comes from the page, or from a program that has its token.

        Raises:
            RefusedError: it names another host (a name that an attacker points here), comes from another site or has
                no token; or too many come at once.
        """
        server, named = self.server, self.headers.get_all("Host", [])
        origins = self.headers.get_all("Origin", [])
        site = self.headers.get("Sec-Fetch-Site", "none")
        known = secrets.compare_digest(token.encode("utf-8", "replace"), server.token.encode())
        is_ours = len(named) == 1 and named[0] in server.hosts
        is_ours &= {*origins} <= {f"http://{host}" for host in server.hosts}
        is_ours &= site in {"none", "same-origin"}
        if not (server.own if known and is_ours else server.strangers).take():
            raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, "too many requests: wait a second")
        if not is_ours:
            raise RefusedError(HTTPStatus.FORBIDDEN, "this page is not for other sites")
        if not known:
            raise RefusedError(HTTPStatus.FORBIDDEN, "open the address that `costar explore` printed, with its token")

    def _read(self, length: int) -> bytes:
        """Return so many bytes of the body.

        Raises:
            RefusedError: they do not come.
        """
        try:
            body = self.rfile.read(length)
        except OSError:
            body = b""
        if len(body) < length:
            raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, "the question is not complete")
        return body

    def _refuse(self, error: Exception) -> None:
        """Send one message: problem, and place and fix where they are known."""
        said: dict[str, object] = {"problem": str(error)}
        status = HTTPStatus.BAD_REQUEST
        if isinstance(error, RefusedError):
            status = error.status
        elif isinstance(error, CostarError):
            said = {name: error.to_json()[name] for name in ("problem", "where", "fix", "details")}
            status = status if isinstance(error, CLIENTS_FAULT) else HTTPStatus.INTERNAL_SERVER_ERROR
        elif isinstance(error, Full | TimeoutError):
            said, status = {"problem": "another answer is being computed: try again"}, HTTPStatus.SERVICE_UNAVAILABLE
        self._send(status, json.dumps(said).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str, more: Mapping[str, str] | None = None) -> None:
        with suppress(OSError):  # the client has left
            self.send_response(status)
            for name, value in (self.server.headers | dict(more or {})).items():
                self.send_header(name, value)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Send what the base class has to say of requests that are none, as one message."""
        self.command = getattr(self, "command", None) or ""
        self._send(code, json.dumps({"problem": cut(message or "not understood", 200)}).encode(), "application/json")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's own
        """Keep no log: it would have the token."""
