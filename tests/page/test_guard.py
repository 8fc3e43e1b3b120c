"""Who may ask the page's server: the token, the name, the site, for every route and every method."""

from __future__ import annotations

import contextlib
import http.client
import socket
from pathlib import Path

import pytest
from starlette.routing import Route

from page._asking import Server
from volary.errors import BadInput
from volary.page.actions import ACTIONS, STARTS
from volary.page.overview.folder import Folder
from volary.page.overview.sessions import SessionFiles
from volary.page.questions.answers import ANSWERS
from volary.page.server import guard
from volary.page.server.app import PageApp
from volary.page.server.guard import is_loopback, names
from volary.page.server.serve import PageServer
from volary.page.using import USES

APP = PageApp(Folder(Path("runs")), SessionFiles(Path()), lambda: False, starts=True).app()
# whatever is served, by what it is served to: a new route is in all tables below
PATHS = [
    (route.path.format(name="page.js"), frozenset(route.methods or ()))
    for route in APP.routes
    if isinstance(route, Route)
]
READING = [f"{path}?run=lenet-digits-1" for path, methods in PATHS if "GET" in methods]
CHANGING = [f"{path}?run=lenet-digits-1" for path, methods in PATHS if "GET" not in methods]
ROUTES = [*READING, "/static/page.css", "/nothing/here", *CHANGING]
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"]
EVERY = [(method, route) for route in ROUTES for method in METHODS]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Cookie": None}, 401),
        ({"Cookie": "volary-1={token}"}, 401),
        ({"Cookie": "volary-{port}=" + "x" * 32}, 401),
        ({"Cookie": "volary-{port}={token}x"}, 401),
        ({"Cookie": "volary-{port}=\u00e9"}, 401),
        ({"Host": "evil.example:{port}"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Host": "127.0.0.1:{port}.evil.example"}, 421),
        ({"Host": ""}, 421),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "https://127.0.0.1:{port}"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_no_route_answers_by_any_method_to(headers, status, server):
    port = server.address.rpartition(":")[2]
    given = {name: value and value.format(port=port, token=server.token) for name, value in headers.items()}
    if "Cookie" in given:  # all else is right
        given["Origin"] = f"http://{server.address}"
    for method, route in EVERY:
        said = server.say(method, route, **{name.replace("-", "_"): value for name, value in given.items()})
        assert said.status == status, (method, route, said)
        assert "set-cookie" not in said.headers
        assert "access-control-allow-origin" not in said.headers


def test_a_request_that_would_change_something_must_say_that_it_is_the_pages_own(server):
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        for route in ROUTES:
            assert server.say(method, route, b"{}").status == 403, (method, route)


def test_what_reads_takes_no_other_method_and_what_changes_takes_post_alone(server):
    origin = f"http://{server.address}"
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        for route in READING:
            assert server.say(method, route, Origin=origin).status in (404, 405), (method, route)
    for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"):
        for route in CHANGING:
            assert server.say(method, route, Origin=origin).status == 405, (method, route)
    assert server.ask("facts", run="lenet-digits-1")["tags"] == []


def test_a_run_whose_name_no_file_system_takes_is_none_that_there_is(server):
    origin = f"http://{server.address}"
    for method, routes in (("GET", READING), ("POST", CHANGING)):
        for route in routes:
            path = route.partition("?")[0]
            for name in ("a" * 5000, "b/" * 3000, "%C3%A9" * 300, "%00", "%FF"):
                said = server.say(method, f"{path}?run={name}&session={name}&name={name}", b"{}", Origin=origin)
                assert said.status in (200, 400, 404), (route, said)
                assert len(said.text) < 500 or said.status == 200


def test_whoever_sends_half_a_request_is_let_go_and_keeps_nobody_waiting(server):
    host, port = server.address.split(":")
    with contextlib.ExitStack() as plugs:
        halves = [plugs.enter_context(socket.create_connection((host, int(port)), timeout=300)) for _ in range(20)]
        for number, plug in enumerate(halves):
            plug.sendall(b"GET /api/runs HT" if number % 2 else b"")
        assert server.ask("facts", run="lenet-digits-1")["tags"] == []
        for plug in halves:
            with contextlib.suppress(ConnectionResetError):
                assert plug.recv(1) == b""


def test_every_route_is_in_these_tables(server):
    assert len(PATHS) == len(APP.routes), "nothing is mounted, and no other kind of route is there"
    assert {methods for _, methods in PATHS} == {frozenset({"GET", "HEAD"}), frozenset({"POST"})}
    made = ("train", "begin", "upload", "look", "draft", "create")
    assert {path.partition("?")[0] for path in CHANGING} == {
        f"/api/{name}" for name in (*ACTIONS, *STARTS, *USES, *made)
    }
    assert len(READING) > len(ANSWERS)


def test_what_is_read_changes_no_file_of_any_run(server):
    runs = Path(server.ask("runs")["folder"])
    before = _files(runs)
    for route in READING:
        if not route.startswith("/api/live"):
            assert server.say("GET", route).status in (200, 400), route
            assert server.say("HEAD", route).status in (200, 400), route
    assert _files(runs) == before


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Sizes and times; a reader of a write-ahead database shares its empty log and index."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".sqlite-wal", ".sqlite-shm"))
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def test_the_link_gives_a_cookie_that_no_script_and_no_other_site_gets(server):
    said = server.say("GET", f"/?token={server.token}", Cookie=None)
    assert said.status == 200
    assert said.headers["set-cookie"] == f"{server.cookie}; Path=/; HttpOnly; SameSite=Strict"
    assert '<div id="page">' in said.text


@pytest.mark.parametrize("token", ["", "x", "x" * 32, "{token}x", "%C3%A9", "%00"])
def test_a_wrong_token_in_the_link_is_refused_and_gives_no_cookie_even_to_who_has_one(token, server):
    said = server.say("GET", "/?token=" + token.format(token=server.token))
    if token:
        assert said.status == 401
    assert "set-cookie" not in said.headers


def test_the_token_counts_in_the_link_of_the_page_alone(server):
    assert server.say("GET", f"/api/runs?token={server.token}", Cookie=None).status == 401


def test_the_token_is_compared_in_constant_time(monkeypatch):
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr(guard, "compare_digest", compare)
    guarded = guard.Guard(app=None, token="right", hosts=frozenset({"here:1"}), cookie="c")  # type: ignore[arg-type]
    for cookie, seen in (("", b""), ("c=r", b"r"), ("c=right", b"right"), ("c=wrong", b"wrong")):
        headers = guard.Headers({"host": "here:1", "cookie": cookie})
        refusal = guarded._refusal("GET", headers, None)
        assert refusal is not None
        assert refusal.status_code == 401
        assert compared.pop() == (seen, b"right")


def test_every_answer_keeps_the_browser_strict(server):
    for route in ROUTES:
        if route.startswith("/api/live"):
            continue
        for cookie in (server.cookie, None):
            headers = server.say("GET", route, Cookie=cookie).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "http" not in policy
            assert "frame-ancestors 'none'" in policy
            assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
            assert (headers["cache-control"], headers["cross-origin-resource-policy"]) == ("no-store", "same-origin")


def test_a_run_is_asked_for_by_its_name_and_no_other_place_of_the_machine_can_be(server):
    names = ("..", "../runs", ".", "", "/etc", "lenet-digits-1/..", "lenet-digits-1/../lenet-digits-1",
                 "lenet-digits-1/logs", "sweep", "%00", "lenet-digits-1%00", "sweep//lr-0.1",
             "./lenet-digits-1")  # fmt: skip
    for name in names:
        for question in ANSWERS:
            assert server.say("GET", f"/api/{question}?run={name}").status == 404, (question, name)
        for action in ACTIONS:
            body = b'{"tags": []}'
            said = server.say("POST", f"/api/{action}?run={name}", body, Origin=f"http://{server.address}")
            assert said.status == 404, (action, name)
    for path in ("/static/..%2fguard.py", "/static/index.html", "/static/%2e%2e/guard.py", "/../guard.py"):
        assert server.say("GET", path).status == 404


def test_what_cannot_be_meant_is_refused_in_a_sentence(server):
    for words in ("first=x", "first=-1", "columns=1e9", "first=9&last=3", "step=" + "9" * 16):
        said = server.say("GET", f"/api/{'timeline' if 'step' in words else 'steps'}?run=lenet-digits-1&{words}")
        assert (said.status, "accepted:" in said.text) == (400, True)


def test_a_websocket_is_not_opened(server):
    said = server.say("GET", "/api/live", Cookie=None, Connection="Upgrade", Upgrade="websocket")
    assert said.status == 401


def test_a_server_of_loopback_goes_by_its_usual_names_and_no_others():
    assert names("127.0.0.1", 5) == {"127.0.0.1:5", "localhost:5", "[::1]:5"}
    assert names("127.0.0.1", 80) == {"127.0.0.1:80", "localhost:80", "[::1]:80", "127.0.0.1", "localhost", "[::1]"}
    assert is_loopback("localhost")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")


def test_a_server_of_all_addresses_goes_by_this_machines_names_and_addresses():
    found = names("0.0.0.0", 5)
    assert {"localhost:5", f"{socket.gethostname().lower()}:5", "127.0.0.1:5"} <= found
    assert "evil.example:5" not in found


def test_it_listens_on_loopback_alone_unless_another_address_is_asked_for(tmp_path):
    own = PageServer(tmp_path)
    asked = PageServer(tmp_path, "0.0.0.0")
    try:
        assert own._http._socket.getsockname()[0] == "127.0.0.1"
        assert asked._http._socket.getsockname()[0] == "0.0.0.0"
        assert len(own._token) == len(asked._token) == 32
        assert own._token != asked._token
    finally:
        own._http._socket.close()
        asked._http._socket.close()


def test_a_folder_or_an_address_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadInput, match="there is no such folder"):
        PageServer(tmp_path / "nothing")
    with pytest.raises(BadInput, match="accepted: an address of this machine"):
        PageServer(tmp_path, "no such name")


def test_a_request_of_any_size_is_bounded(server: Server):
    host, _, port = server.address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    try:
        connection.request("GET", "/" + "x" * 200_000)
        assert connection.getresponse().status == 400
    finally:
        connection.close()
