"""The server of `costar explore` answers its own page and nobody else: each refusal has its status and one message."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from costar_cli.cli.exploring import server as module
from costar_cli.cli.exploring.server import MOST_BYTES, MOST_CONNECTIONS, TOKEN_HEADER, Bucket, ExploreServer
from costar_cli.errors import UsageError
from costar_cli.plans.untrusted import JsonObject

PAGE, POLICY = "<!DOCTYPE html><title>page</title>", "default-src 'none'"
Work = Callable[[JsonObject], Any]


def _stop(_: JsonObject) -> Any:
    raise KeyboardInterrupt


def _refuse(_: JsonObject) -> Any:
    raise UsageError("no such subject", where="subject", fix="choose another")


def _break(_: JsonObject) -> Any:
    raise RuntimeError("a bug")


@contextmanager
def serving(**questions: Work) -> Iterator[ExploreServer]:
    """A server whose main thread is another one; it ends as Ctrl-C ends it."""
    with ExploreServer(0) as server:

        def run() -> None:
            with suppress(KeyboardInterrupt):
                server.run(PAGE, POLICY, {"stop": _stop, "echo": dict, "refuse": _refuse, "break": _break, **questions})

        thread = threading.Thread(target=run)
        thread.start()
        try:
            while not server.questions:
                time.sleep(0.01)
            yield server
        finally:
            server.own = server.strangers = Bucket()
            server.ask(_stop, JsonObject())
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture
def server() -> Iterator[ExploreServer]:
    with serving() as made:
        yield made


Answer = tuple[int, dict[str, Any], http.client.HTTPResponse]


def send(
    server: ExploreServer,
    method: str = "POST",
    path: str = "/api/echo",
    body: bytes = b'{"a": 1}',
    drop: str = "",
    **more: str,
) -> Answer:
    """What the server says to a request as its page sends it, with some headers changed, and one of them left out."""
    headers = {
        "Host": f"127.0.0.1:{server.server_port}", "Origin": f"http://127.0.0.1:{server.server_port}",
        "Content-Type": "application/json", "Content-Length": str(len(body)), TOKEN_HEADER: server.token,
    } | {name.replace("_", "-"): value for name, value in more.items()}  # fmt: skip
    headers.pop(drop, None)
    client = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    client.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in headers.items():
        client.putheader(name, value)
    client.endheaders(body)
    reply = client.getresponse()
    content = reply.read()
    client.close()
    is_json = (reply.headers.get_content_type(), bool(content)) == ("application/json", True)
    return reply.status, json.loads(content) if is_json else {"text": content.decode()}, reply


def test_the_address_has_the_page_with_headers_that_keep_it_to_itself(server: ExploreServer) -> None:
    status, page, reply = send(server, "GET", f"/?token={server.token}", b"", drop="Origin")
    assert (status, page["text"]) == (200, PAGE)
    assert reply.headers["Content-Security-Policy"] == f"{POLICY}; frame-ancestors 'none'"
    wanted = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
              "X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin", "Server": "costar"}  # fmt: skip
    assert {name: reply.headers[name].strip() for name in wanted} == wanted
    assert "Access-Control-Allow-Origin" not in reply.headers
    assert server.address == f"http://127.0.0.1:{server.server_port}/?token={server.token}"
    assert len(server.token) >= 43, "256 bits"


def test_a_question_is_answered_with_the_time_that_it_took(server: ExploreServer) -> None:
    status, answer, reply = send(server)
    assert (status, answer) == (200, {"a": 1})
    assert reply.headers["Server-Timing"].startswith("answer;dur=")
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert send(server, Host=f"localhost:{server.server_port}", drop="Origin")[0] == 200


@pytest.mark.parametrize(
    "changed",
    [
        {TOKEN_HEADER: "guess"}, {TOKEN_HEADER: "\xe9\xff"}, {TOKEN_HEADER: ""}, {"drop": TOKEN_HEADER},
        {"Host": "evil.example"}, {"Host": "evil.example:80"}, {"Host": "127.0.0.1"}, {"drop": "Host"},
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "https://127.0.0.1:1"},
        {"Origin": "localhost"},
        {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"},
    ],
    ids=str,
)  # fmt: skip
def test_strangers_are_refused_whatever_they_ask(server: ExploreServer, changed: Mapping[str, str]) -> None:
    more = {name.replace("-", "_"): value for name, value in changed.items() if name != "drop"}
    for path in ("/api/echo", "/api/stop", "/api/nothing"):
        status, said, reply = send(server, path=path, drop=changed.get("drop", ""), **more)
        assert (status, list(said)) == (403, ["problem"])
        assert reply.headers["Cache-Control"] == "no-store"
    assert send(server)[0] == 200, "and the page goes on"


def test_two_hosts_are_no_host(server: ExploreServer) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port)) as client:
        own = f"Host: 127.0.0.1:{server.server_port}\r\n"
        client.sendall(f"GET /?token={server.token} HTTP/1.1\r\n{own}{own}\r\n".encode())
        assert b" 403 " in client.recv(100)


@pytest.mark.parametrize("path", ["/", "/?token=", "/?token=guess", "/?token=é", "/index.html?token=guess"])
def test_the_page_is_not_for_who_lacks_the_token(server: ExploreServer, path: str) -> None:
    status, said, _ = send(
        server, "GET", path.encode().decode("latin-1").replace("\xc3\xa9", "%C3%A9"), b"", drop="Origin"
    )
    assert (status, list(said)) == (403, ["problem"])
    assert "token" in said["problem"]


@pytest.mark.parametrize("path", ["/../../etc/passwd", "/etc/passwd", "/data.h5", "//x/y", "/%2e%2e/x", "/favicon.ico"])
def test_no_path_leads_to_a_file(server: ExploreServer, path: str) -> None:
    status, said, _ = send(server, "GET", f"{path}?token={server.token}", b"", drop="Origin")
    assert (status, said) == (404, {"problem": "there is one page, at /"})
    assert send(server, path=f"/api{path}")[0] == 404


def test_bodies_are_bounded_whole_and_json(server: ExploreServer) -> None:
    assert send(server, body=b'"' + b"a" * MOST_BYTES + b'"')[0] == 413
    assert send(server, body=b"a" * 20 * MOST_BYTES)[0] == 413
    assert send(server, Content_Type="text/plain")[0] == 415
    assert send(server, Content_Type="application/x-www-form-urlencoded")[0] == 415
    assert send(server, drop="Content-Length")[0] == 411
    for length in ("-1", "1e3", "9" * 20, "٣"):
        assert send(server, Content_Length=length.encode().decode("latin-1"))[0] == 411
    assert send(server, Transfer_Encoding="chunked")[0] == 411
    for body in (
        b"",
        b"{",
        b"[1]",
        b'"x"',
        b"\xff\xfe",
        b"{}{}",
        b"[" * 20_000,
        b'{"a": ' + b"9" * 9_000 + b"}",
        b"null",
    ):
        status, said, _ = send(server, body=body)
        assert (status, bool(said["problem"])) == (400, True), body[:20]


def test_a_body_that_does_not_come_is_not_waited_for(server: ExploreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Handler, "timeout", 0.3)
    assert send(server, body=b'{"a"', Content_Length="100")[0] == 408


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "HEAD"])
def test_other_methods_are_refused(server: ExploreServer, method: str) -> None:
    status, _, reply = send(server, method, "/", b"")
    assert status == 501
    assert reply.headers["X-Content-Type-Options"] == "nosniff"


def test_requests_that_are_none_get_one_message(server: ExploreServer) -> None:
    for text in (b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
                 b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n"):  # fmt: skip
        with socket.create_connection(("127.0.0.1", server.server_port)) as client:
            client.settimeout(10)
            reply = b""
            with suppress(ConnectionError):  # what it has not read resets the connection
                client.sendall(text)
                while part := client.recv(65_536):
                    reply += part
            assert reply.startswith((b"HTTP/1.0 4", b"HTTP/1.0 5", b'{"problem"'))
            assert reply.count(b'"problem"') <= 1
    assert send(server)[0] == 200


def test_errors_say_problem_place_and_fix_and_bugs_end_nothing(server: ExploreServer) -> None:
    status, said, _ = send(server, path="/api/refuse")
    assert status == 400
    assert said == {"problem": "no such subject", "where": "subject", "fix": "choose another", "details": []}
    status, said, _ = send(server, path="/api/break")
    assert status == 500
    assert "a bug" in said["problem"]
    assert send(server)[0] == 200


def test_a_flood_is_refused_and_the_page_goes_on_afterwards(server: ExploreServer) -> None:
    statuses = [send(server)[0] for _ in range(200)]
    assert set(statuses) == {200, 429}
    strangers = [send(server, **{TOKEN_HEADER.replace("-", "_"): "guess"})[0] for _ in range(200)]
    assert set(strangers) == {403, 429}
    time.sleep(0.3)
    assert send(server)[0] == 200


def test_a_flood_of_strangers_takes_nothing_from_the_page(server: ExploreServer) -> None:
    while send(server, Origin="http://evil.example")[0] != 429:
        pass
    assert send(server)[0] == 200


def test_one_question_is_answered_at_a_time_and_few_wait() -> None:
    running, most, gate = [0], [0], threading.Event()

    def slow(_: JsonObject) -> dict[str, Any]:
        running[0] += 1
        most[0] = max(most[0], running[0])
        gate.wait(10)
        running[0] -= 1
        return {}

    with serving(slow=slow) as server:
        statuses: list[int] = []
        threads = [
            threading.Thread(target=lambda: statuses.append(send(server, path="/api/slow")[0])) for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        while len(statuses) < len(threads) - 1 - module.MOST_WAITING:
            time.sleep(0.01)
        assert set(statuses) == {503}
        gate.set()
        for thread in threads:
            thread.join(20)
    assert most == [1]
    assert statuses.count(200) == 1 + module.MOST_WAITING


def test_connections_that_say_nothing_are_counted_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Handler, "timeout", 3.0)
    with serving() as server, ExitStack() as silent:
        for _ in range(MOST_CONNECTIONS):
            silent.enter_context(socket.create_connection(("127.0.0.1", server.server_port)))
        with pytest.raises(ConnectionError):
            send(server)
        time.sleep(3.5)
        assert send(server)[0] == 200, "their places are free again"


def test_a_port_that_is_taken_is_said_and_is_free_afterwards(server: ExploreServer) -> None:
    with pytest.raises(UsageError, match=f"port {server.server_port} is in use"):
        ExploreServer(server.server_port)
    with pytest.raises(UsageError, match="port 70000 cannot be used"):
        ExploreServer(70_000)
    with serving() as other:
        port = other.server_port
    with ExploreServer(port) as again:
        assert again.server_address == ("127.0.0.1", port), "this machine alone"
