"""How the page's server answers: as JSON, a POST with its body in a thread, an error in a sentence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio.to_thread
import msgspec
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from volary.errors import BadInput, RunError

Act = Callable[[QueryParams, bytes], Any]  # the words of a POST and its body, to an answer, if there is one


def posted(act: Act) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that answers a POST by `act`: a response as it is, nothing without content, all else as JSON."""

    async def answer(request: Request) -> Response:
        body = await request.body()
        found = await anyio.to_thread.run_sync(act, request.query_params, body)
        if isinstance(found, Response):
            return found
        return Response(status_code=204) if found is None else as_json(found)

    return answer


def started(act: Act, *, starts: bool) -> Act:
    """The same act on a page that may start processes; else what refuses it. Raises BadInput."""

    def act_or_refuse(words: QueryParams, body: bytes) -> Any:
        if not starts:
            raise BadInput("this page is served beyond its own machine, and starts nothing there: use a terminal")
        return act(words, body)

    return act_or_refuse


def as_json(value: Any) -> Response:
    """An answer as JSON; what is NaN becomes null."""
    return Response(msgspec.json.encode(value), media_type="application/json")


def refused(_: Request, error: Exception) -> Response:
    """The answer to what raised an error of Volary's."""
    status = 404 if isinstance(error, RunError) else 400 if isinstance(error, BadInput) else 500
    return PlainTextResponse(f"{error}\n", status)


def http(_: Request, error: Exception) -> Response:
    """The answer to what raised an error of HTTP."""
    assert isinstance(error, HTTPException)
    return PlainTextResponse(f"{error.detail}\n", error.status_code, headers=error.headers)
