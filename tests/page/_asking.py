"""The page's server as a process of its own, and questions to it over real sockets."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

SOURCE = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class Said:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Server:
    """A running server. link: as it was printed. pid: of its process."""

    link: str
    pid: int

    @property
    def address(self) -> str:
        return urlsplit(self.link).netloc

    @property
    def token(self) -> str:
        return parse_qs(urlsplit(self.link).query)["token"][0]

    @property
    def cookie(self) -> str:
        return f"volary-{urlsplit(self.link).port}={self.token}"

    def say(self, method: str, path: str, body: bytes | None = None, **headers: str | None) -> Said:
        """Send exactly these headers, with `_` for `-`; Host and the cookie if they are not given, none if None."""
        given = {"Host": self.address, "Cookie": self.cookie} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        where = urlsplit(self.link)
        connection = http.client.HTTPConnection(str(where.hostname), where.port or 80, timeout=120)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return Said(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode())
        finally:
            connection.close()

    def ask(self, question: str, **words: object) -> Any:
        """The answer to a question that is answered."""
        said = self.say("GET", f"/api/{question}?{urlencode(words)}")
        assert said.status == 200, said.text
        return said.json


@contextmanager
def served(folder: Path, *options: str, by: Sequence[str] = ()) -> Iterator[Server]:
    """`volary ui` of the folder, with a queue beside it. by: a command that starts it."""
    process = subprocess.Popen(
        [*by, sys.executable, "-m", "volary", "ui", str(folder.absolute()), *options],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder.parent,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "XDG_STATE_HOME": str(folder.parent.absolute() / "state")},
    )
    assert process.stdout is not None
    try:
        link = process.stdout.readline().strip()
        assert link.startswith("http://"), link
        yield Server(link, process.pid)
        process.terminate()
        assert process.wait(120) == 130
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
