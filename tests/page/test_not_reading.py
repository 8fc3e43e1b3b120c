"""A tab that asks and never reads: the server keeps next to nothing for it, answers others, and ends in time."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from monitor._made_runs import journal, rows
from page._asking import Server, served
from page._made import slow_run
from volary.page.overview.folder import Folder
from volary.page.overview.sessions import SessionFiles
from volary.page.server import app
from volary.page.server.app import PageApp
from volary.page.server.serve import PageServer

STREAMS, ASKED = 10, 300
MOST_BYTES = 24 * 2**20  # more than that in all; what was asked for and not read is 300 times the page's script


def test_while_a_tab_takes_nothing_the_server_does_not_even_look_for_it(monkeypatch):
    looks, pages = [], PageApp(Folder(slow_run().path.parent), SessionFiles(Path()), lambda: False, starts=True)
    monkeypatch.setattr(app, "LOOK_S", 0.001)
    monkeypatch.setattr(app._RunStream, "__call__", lambda _: looks.append(1) or len(looks))  # always another answer

    async def until_it_hangs() -> int:
        taken, hangs = 0, asyncio.Event()

        async def send(_: object) -> None:
            nonlocal taken
            taken += 1
            if taken == 4:
                hangs.set()
                await asyncio.Event().wait()

        async def receive() -> dict[str, str]:
            return await asyncio.Event().wait() or {}

        scope = {
            "type": "http", "method": "GET", "path": "/api/live", "query_string": b"run=slow-1", "headers": [],
        }  # fmt: skip
        stream = asyncio.create_task(pages.app()(scope, receive, send))
        await hangs.wait()
        before = len(looks)
        await asyncio.sleep(0.05)  # fifty looks, if it did
        assert (len(looks), pages.tabs) == (before, 1)
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
        return before

    # in a thread of its own: Playwright's loop, of a test before, runs in this one
    with ThreadPoolExecutor() as thread:
        seen = thread.submit(asyncio.run, until_it_hangs()).result()
    assert seen == 3, "one for each word that it took, and the one it did not take"
    assert pages.tabs == 0


@contextmanager
def asking(server: Server, question: str, times: int = 1) -> Iterator[socket.socket]:
    """A connection that asks so often and reads nothing."""
    where = urlsplit(server.link)
    request = f"GET {question} HTTP/1.1\r\nHost: {server.address}\r\nCookie: {server.cookie}\r\n\r\n".encode()
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((where.hostname, where.port))
        deaf.settimeout(60)
        deaf.sendall(request * times)
        yield deaf


def waits_for_a_tab(server: PageServer) -> bool:
    """Whether there is more to send than a tab takes."""
    running = server._http._server
    connections = [] if running is None else list(running.server_state.connections)
    return any(one.flow is not None and one.flow.write_paused for one in connections)


def test_a_server_that_ends_while_a_tab_does_not_read_says_nothing_of_it(caplog):
    (folder := Path("runs")).mkdir()
    server = PageServer(folder)
    with ThreadPoolExecutor() as thread:
        running = thread.submit(server.run)
        with asking(Server(server.link, 0), "/static/page.js", ASKED):
            while not (waits_for_a_tab(server) or running.done()):
                time.sleep(0.01)
            server.leave()
            running.result()
    assert not caplog.records


@pytest.mark.slow  # a server of its own, which has to end
def test_tabs_that_never_read_hold_nobody_up_and_cost_the_server_no_memory():
    directory = slow_run()
    with ExitStack() as deaf, served(Path("runs")) as server:  # it ends while they are still connected
        process = psutil.Process(server.pid)
        server.ask("steps", run="slow-1")
        before = process.memory_info().rss
        for _ in range(STREAMS):
            deaf.enter_context(asking(server, "/api/live?run=slow-1"))
        deaf.enter_context(asking(server, "/static/page.js", ASKED))
        with journal(directory) as run:
            run.continue_attempt()
            for step in range(101, 131):
                run.steps(rows(step, step))
                assert server.ask("steps", run="slow-1")["last"] == step
        assert process.memory_info().rss - before < MOST_BYTES
