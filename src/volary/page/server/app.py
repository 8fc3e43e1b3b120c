"""The page's server as an application: it answers each path. GET changes nothing."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread
from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from volary.errors import VolaryError
from volary.page.actions import ACTIONS, LARGEST_BYTES, STARTS, Start, parsed
from volary.page.commands import train
from volary.page.making.places import DataPlaces
from volary.page.overview.changes import signature
from volary.page.overview.compare import compare
from volary.page.overview.folder import Folder
from volary.page.overview.queue import QueueHere, queue_here
from volary.page.overview.sessions import SessionFiles
from volary.page.overview.table import Overview, RunTable
from volary.page.questions.answers import ANSWERS, Query
from volary.page.questions.form import tried
from volary.page.server.answering import Act, as_json, http, posted, refused, started
from volary.page.server.making_routes import MakingRoutes
from volary.page.using import USES
from volary.run.directory import RunDirectory

STATIC = Path(__file__).parents[1] / "static"
LOOK_S = 0.2  # how often a run that somebody watches is looked at
LOOK_AT_ALL_S = 1.0  # how often all are
READ_S = 0.25  # how long runs are read before those that were are shown
STATE_S = 2.0  # that a driver is gone changes no file: how often that is asked
SILENCE_S = 15.0  # after which a stream says that it is still there


class PageApp:
    """Answers for one folder. ending: whether the server wants to end; streams end then. tabs: that look on now.

    starts: whether the page may start processes, from the session files of `sessions`. data: folders beside theirs
    whose data may be looked at.
    """

    def __init__(
        self,
        folder: Folder,
        sessions: SessionFiles,
        ending: Callable[[], bool],
        *,
        starts: bool,
        data: Sequence[Path] = (),
    ) -> None:
        self._sessions, self._starts, self._places = sessions, starts, DataPlaces([sessions.home, *data])
        self._folder, self._ending = folder, ending
        self._overview, self._one_at_a_time = Overview(folder), threading.Lock()
        self.tabs = 0

    def app(self) -> Starlette:
        """The ASGI application, without the guard that checks who asks."""
        routes = [
            Route("/", self._index),
            Route("/static/{name}", self._static),
            Route("/api/runs", self._runs),
            Route("/api/queue", lambda _: as_json(self._queue())),
            Route("/api/live", self._live),
            Route("/api/compare", self._compare),
            *(Route(f"/api/{name}", self._answer(name)) for name in ANSWERS),
            Route("/api/sessions", self._session_files),
            Route("/api/form", self._form),
            *(Route(f"/api/{name}", posted(self._of_run(act)), methods=["POST"]) for name, act in ACTIONS.items()),
            *(
                Route(f"/api/{name}", self._starting(self._of_run(act)), methods=["POST"])
                for name, act in STARTS.items()
            ),
            Route("/api/train", self._starting(self._train), methods=["POST"]),
            *(self._use(name, act, most) for name, (act, most) in USES.items()),
            *MakingRoutes(self._folder, self._sessions, self._places, starts=self._starts).routes(),
        ]
        handlers = {VolaryError: refused, HTTPException: http}
        return Starlette(routes=routes, exception_handlers=handlers, max_body_size=LARGEST_BYTES)

    def _index(self, _: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ("page.js", "page.css"):
            raise HTTPException(404)
        return FileResponse(STATIC / name)

    def _runs(self, _: Request) -> Response:
        return as_json({"folder": str(self._folder.path), **vars(self._table())})

    def _table(self) -> RunTable:
        with self._one_at_a_time:
            return self._overview.table(READ_S)

    def _queue(self) -> QueueHere:
        return queue_here(self._folder, starts=self._starts)

    def _answer(self, name: str) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            query = Query(request.query_params)
            return as_json(ANSWERS[name](self._folder.run(request.query_params.get("run", "")), query))

        return answer

    def _compare(self, request: Request) -> Response:
        return as_json(compare(self._folder, request.query_params.getlist("run")))

    def _session_files(self, _: Request) -> Response:
        """Their names, and which of them is to be shown first."""
        if not self._starts:
            return as_json({"files": [], "starts": False})
        runs = map(self._folder.run, (row.id for row in self._table().runs))  # the newest first
        return as_json({"files": self._sessions.names(), "first": self._sessions.first(runs), "starts": True})

    def _form(self, request: Request) -> Response:
        """Answer the form of the session file `session`, or of the run `run`, with the overrides `set`."""
        words = request.query_params
        path = (
            self._folder.run(words["run"]).session if "run" in words else self._sessions.path(words.get("session", ""))
        )
        return as_json(tried(path, words.getlist("set")))

    def _of_run(self, act: Callable[[RunDirectory, bytes], Any]) -> Act:
        return lambda words, body: act(self._folder.run(words.get("run", "")), body)

    def _use(self, name: str, act: Callable[[RunDirectory, QueryParams, bytes], Any], most: int) -> Route:
        """The route of something that is done with a run, with a body of so many bytes."""
        of_run = self._starting(lambda words, body: act(self._folder.run(words.get("run", "")), words, body))
        return Route(f"/api/{name}", of_run, methods=["POST"], max_body_size=most)

    def _starting(self, act: Act) -> Callable[[Request], Awaitable[Response]]:
        return posted(started(act, starts=self._starts))

    def _train(self, words: QueryParams, body: bytes) -> Any:
        """Train the session file `session`; answer the new run's name."""
        start, path = parsed(body, Start, "train"), self._sessions.path(words.get("session", ""))
        return {"run": train(path, start.overrides, self._folder, queued=start.queue)}

    async def _live(self, request: Request) -> Response:
        """Server-sent events: one whenever what is looked at has changed: `run`, the `queue`, or else all runs."""
        name, every_s = request.query_params.get("run"), LOOK_AT_ALL_S
        look: Callable[[], Any] = self._queue if "queue" in request.query_params else self._table
        if name is not None:
            directory = await anyio.to_thread.run_sync(self._folder.run, name)
            look, every_s = _RunStream(directory), LOOK_S
        return StreamingResponse(self._changes(look, every_s), media_type="text/event-stream")

    async def _changes(self, look: Callable[[], Any], every_s: float) -> AsyncIterator[str]:
        self.tabs += 1
        try:
            async for text in self._events(look, every_s):
                yield text
        finally:
            self.tabs -= 1

    async def _events(self, look: Callable[[], Any], every_s: float) -> AsyncIterator[str]:
        before, number, silent_s = None, 0, 0.0
        if every_s == LOOK_AT_ALL_S:
            await asyncio.sleep(every_s)  # a tab has just asked for all runs: it need not wait for us
        while not self._ending():
            now = await anyio.to_thread.run_sync(look)
            if now != before:
                before, number, silent_s = now, number + 1, 0.0
                yield f"id: {number}\nevent: changed\ndata: {json.dumps(number)}\n\n"
            elif silent_s >= SILENCE_S:
                silent_s = 0.0
                yield ": still here\n\n"
            await asyncio.sleep(every_s)
            silent_s += every_s


class _RunStream:
    """A stream of what changes with one run."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory, self._looks, self._live = directory, 0, False

    def __call__(self) -> Any:
        if self._looks % round(STATE_S / LOOK_S) == 0:
            self._live = self._directory.is_live()
        self._looks += 1
        return signature(self._directory), self._live
