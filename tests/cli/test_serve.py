"""`volary serve`: a network that answers over HTTP, and whom."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from cli.test_predict import KINDS, kinds
from volary import Result
from volary.prediction.serve import PredictionServer
from volary.prediction.start import PredictionSettings
from volary.run.directory import RunDirectory

__all__ = ["kinds"]


@contextmanager
def serving(run: str) -> Iterator[tuple[str, str]]:
    """Address and token of a server of this process, whose sockets are real."""
    server = PredictionServer(RunDirectory.existing(run), PredictionSettings(), 0, print)
    with ThreadPoolExecutor() as thread:
        running = thread.submit(server.run)
        try:
            yield f"{server.address}/", server.token
        finally:
            server.leave()
            running.result()


def ask(address: str, token: str, name: str = "", body: bytes | None = None, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(f"{address}{name}", body, {"Authorization": f"Bearer {token}", **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_rows_that_are_sent_are_answered_as_predict_answers_them_and_nobody_else_is(kinds: Result) -> None:
    wanted = kinds.predict("new.csv", batch_size=7)
    with serving("kinds") as (address, token):
        said = json.loads(ask(address, token)[1])
        assert (said["run"], said["step"], said["classes"]) == ("kinds", 40, list(KINDS))
        status, text = ask(address, token, "rows.csv", Path("new.csv").read_bytes())
        rows = json.loads(text)["predictions"]
        assert status == 200
        assert [row["class"] for row in rows] == wanted.labels
        np.testing.assert_allclose([row["probabilities"]["bee"] for row in rows], wanted.values[:, 1], rtol=1e-5)
        x, y = map(float, Path("new.csv").read_text().splitlines()[1].split(","))
        sent = json.dumps([{"y": y, "x": x}]).encode()
        assert json.loads(ask(address, token, "one.json?top=1", sent)[1])["predictions"][0]["class"] == rows[0]["class"]
        for name, body, sentence in (
            ("x.csv", b"x\n1\n", "x.csv: has no column 'y'"),
            ("x.json", b"{", "x.json: is no JSON"),
            ("x", b"", "accepted: a file's name"),
            ("x.csv?top=a", b"x,y\n1,2\n", "top is 'a'"),
            ("x.csv?tip=1", b"x,y\n1,2\n", "'tip' after the ?: unknown; accepted: top"),
        ):
            status, text = ask(address, token, name, body)
            assert (status, sentence in text, "volary-serve" in text) == (400, True, False), text
        assert ask(address, token, "..%2Fx.csv", b"")[0] == 404
        assert ask(address, "x")[0] == 401
        assert ask(address, token, Host="evil.example")[0] == 421
        assert ask(address, token, Origin="http://evil.example")[0] == 403
        assert ask(address, token, **{"Sec-Fetch-Site": "cross-site"})[0] == 403
