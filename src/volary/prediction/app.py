"""Answers predictions over HTTP: a file is sent, under a name that says what it is, and JSON comes back."""

from __future__ import annotations

import re
import tempfile
import threading
from hmac import compare_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import msgspec
import torch
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from volary.errors import BadInput
from volary.prediction.rows_sent import as_file
from volary.run.directory import RunDirectory
from volary.train.predicting.formats.jsonl import answer
from volary.train.predicting.predict import answers_of
from volary.train.predicting.predictor import Predictor

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from volary.train.predicting.request import Request

LARGEST_BYTES = 64 * 2**20  # of a request
_NAME = re.compile(r"[\w.-]{1,100}\.[A-Za-z0-9]{1,8}", re.ASCII)


class PredictionApp:
    """Answers for one network, one request at a time."""

    def __init__(self, request: Request) -> None:
        directory = RunDirectory(request.run)
        self._predictor = Predictor.of(directory, request, torch.device("cpu"))
        self._about = {"run": directory.name, "step": request.step}
        self._one_at_a_time = threading.Lock()

    def app(self) -> Starlette:
        """The ASGI application, without the guard that checks who asks."""
        routes = [Route("/", self._say_about), Route("/{name}", self._predict, methods=["POST", "PUT"])]
        handlers = {BadInput: _refused, HTTPException: _http}
        return Starlette(routes=routes, exception_handlers=handlers, max_body_size=LARGEST_BYTES)

    def _say_about(self, _: HttpRequest) -> Response:
        """Which network this is, and what it is asked by."""
        shape = self._predictor.input_shape
        return _json(self._about | {"classes": self._predictor.classes, "input_shape": shape})

    async def _predict(self, request: HttpRequest) -> Response:
        name, top = request.path_params["name"], request.query_params.get("top", "0")
        if not _NAME.fullmatch(name):
            raise BadInput(f"{name!r}: accepted: a file's name whose ending says what it is, such as /digit.png")
        if unknown := request.query_params.keys() - {"top"}:
            raise BadInput(f"{min(unknown)!r} after the ?: unknown; accepted: top, as in /{name}?top=3")
        if not top.isdecimal():
            raise BadInput(f"top is {top!r}; accepted: a whole number, 0 or more")
        body = await request.body()
        return _json(await anyio.to_thread.run_sync(self._answers, name, body, int(top)))

    def _answers(self, name: str, body: bytes, top: int) -> dict[str, Any]:
        with self._one_at_a_time, tempfile.TemporaryDirectory(prefix="volary-serve-") as folder:
            given = as_file(Path(folder), name, body)
            try:
                predictions = [
                    answer(form, called, row) for form, called, row in answers_of(self._predictor, given, top)
                ]
            except BadInput as problem:  # the client knows no folder of ours
                raise BadInput(str(problem).replace(f"{folder}/", "")) from None
        return self._about | {"predictions": predictions}


class BearerGuard:
    """Stands before `app`: everything it lets through names this server and brings the token.

    A browser that another site has sent here brings `Origin` or says so in `Sec-Fetch-Site`, and has no token.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self._app, self._token, self._hosts = app, f"Bearer {token}".encode(), hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request: refuse it, or pass it on."""
        if scope["type"] == "http":
            await (self._refusal(Headers(scope=scope)) or self._app)(scope, receive, send)

    def _refusal(self, headers: Headers) -> Response | None:
        if headers.get("host", "").lower() not in self._hosts:  # another name that leads here: DNS rebinding
            return PlainTextResponse("this server does not go by that name\n", 421)
        if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
            return PlainTextResponse("a request of a web page; accepted: programs, such as curl\n", 403)
        if not compare_digest(headers.get("authorization", "").encode("latin-1"), self._token):
            return PlainTextResponse("the header 'Authorization: Bearer TOKEN' is missing or wrong\n", 401)
        return None


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value) + b"\n", media_type="application/json")


def _refused(_: HttpRequest, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", 400)


def _http(_: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return PlainTextResponse(f"{error.detail}\n", error.status_code, headers=error.headers)
