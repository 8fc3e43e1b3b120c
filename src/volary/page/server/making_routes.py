"""Answers on the way from data to a run: places, dropped files, what is in them, drafts of sessions, their start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from volary.errors import BadInput
from volary.page import commands
from volary.page.actions import parsed
from volary.page.making.places import DataPlaces
from volary.page.making.uploads import FILE_BYTES, Uploads
from volary.page.overview.folder import Folder
from volary.page.overview.sessions import SessionFiles
from volary.page.questions.form import drafted
from volary.page.server.answering import as_json, posted, started


class Draft(msgspec.Struct, forbid_unknown_fields=True):
    """A session that is being written: its text, and overrides on top of it. name: of the file that it becomes.

    queue: whether its run waits in the queue.
    """

    text: str
    overrides: list[str] = []
    name: str = "session"
    queue: bool = False


class MakingRoutes:
    """The routes of a page of `folder`. starts: whether it may start processes, and read places at all."""

    def __init__(self, folder: Folder, sessions: SessionFiles, places: DataPlaces, *, starts: bool) -> None:
        self._folder, self._sessions, self._places, self._starts = folder, sessions, places, starts
        self._uploads = Uploads(sessions.home / "uploads")

    def routes(self) -> list[Route]:
        """All of them; those that change something are POSTs."""
        acts = {"begin": self._begin, "look": self._look, "draft": self._draft, "create": self._create}
        return [
            Route("/api/places", self._offered),
            *(
                Route(f"/api/{name}", posted(started(act, starts=self._starts)), methods=["POST"])
                for name, act in acts.items()
            ),
            Route("/api/upload", self._upload, methods=["POST"], max_body_size=FILE_BYTES),
        ]

    def _offered(self, request: Request) -> Response:
        offered = started(lambda words, _: self._places.offered(words.get("path", "")), starts=self._starts)
        return as_json(offered(request.query_params, b""))

    def _begin(self, words: QueryParams, _: bytes) -> Any:
        name = self._uploads.begin(words.get("name", ""))
        return {"name": name, "path": str(self._uploads.folder / name)}

    async def _upload(self, request: Request) -> Response:
        """Take the body as the file `name` of the folder `into`."""
        words = request.query_params
        started(lambda *_: None, starts=self._starts)(words, b"")
        path = await self._uploads.receive(words.get("into", ""), words.get("name", ""), _content(request))
        return as_json({"path": str(path)})

    def _look(self, words: QueryParams, _: bytes) -> Any:
        """The data at `path`, of which the column `target` is to be predicted."""
        if not (text := words.get("path", "")):
            raise BadInput("path is missing; accepted: a folder or a file of data")
        return commands.look(self._places.path(text), words.get("target", ""))

    def _draft(self, _: QueryParams, body: bytes) -> Any:
        draft = parsed(body, Draft, "the session")
        return drafted(draft.text, self._sessions.home, draft.overrides)

    def _create(self, _: QueryParams, body: bytes) -> Any:
        """Write the session into a new file, and start its run, which is answered with the file's name."""
        draft = parsed(body, Draft, "the session")
        found = drafted(draft.text, self._sessions.home, draft.overrides)
        if found["problems"]:
            sentences = (": ".join(filter(None, problem.values())) for problem in found["problems"])
            raise BadInput("\n".join(sentences))
        path, is_new = self._sessions.written(draft.name, found["text"])
        try:
            run = commands.train(path, [], self._folder, queued=draft.queue)
        except BadInput:
            if is_new:
                path.unlink(missing_ok=True)
            raise
        return {"run": run, "session": path.name}


async def _content(request: Request) -> AsyncIterator[bytes]:
    async for chunk in request.stream():
        yield chunk
