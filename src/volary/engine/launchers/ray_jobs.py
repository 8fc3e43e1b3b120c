"""A job of Ray's: how a cluster's job server takes it, is asked for it and stops it, by its REST API.

Ray knows a job by a name, which is ours, in a cluster: here it is called `name@http://host:port`.
"""

from __future__ import annotations

import http.client
import os
import secrets
import shlex
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from volary.actors.job import JOB
from volary.engine.launchers.queue import BatchJob, JobState
from volary.errors import BadInput

ANSWER_S = 10.0
TAKEN_S = 60.0  # what Ray does before it says that it has a job
STOPPED_S = 60.0  # a job that waits: on a busy machine it may still be importing Ray
ASKS_FOR_A_TOKEN = (
    "asks for a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN where ~/.ray/auth_token is not the cluster's"
)
STARTED_S = 20.0  # Ray's supervisor of a job: stopped before, it goes, and what it has just started stays
_SAVES_S = 300  # a job that is to stop: Ray would kill it after 3 s
_MOST_BYTES = 64 << 20
_MOST_ROWS = 10_000  # the most that Ray lists
_STARTS = "PENDING"
_OVER = {"SUCCEEDED", "FAILED", "STOPPED"}


@dataclass(frozen=True)
class _Answer:
    """status: of HTTP; 0: there is none, and text says why."""

    status: int
    text: str

    @property
    def is_good(self) -> bool:
        return self.status == http.HTTPStatus.OK

    @property
    def words(self) -> str:
        """The last of what it says, as Ray answers with a stack trace."""
        return next((line.strip() for line in reversed(self.text.splitlines()) if line.strip()), f"HTTP {self.status}")

    def decoded(self) -> Any:
        """The answer, which is JSON; None if it is none."""
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(self.text) if self.is_good else None
        return None


def is_job_server(address: str) -> bool:
    """Whether an address is that of a job server, and not of a cluster's head."""
    found = urlsplit(address)
    with suppress(ValueError):
        return found.scheme in ("http", "https") and bool(found.hostname and found.port) and not found.path.strip("/")
    return False


def refusal(server: str) -> str | None:
    """Why it takes no job."""
    answer = _ask(server, "/api/version")
    if answer.status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
        return f"the job server at {server} {ASKS_FOR_A_TOKEN}"
    if isinstance(found := answer.decoded(), dict) and "ray_version" in found:
        return None
    reason = answer.words if not answer.is_good else "it is none of Ray's"
    return f"no job server of Ray's answers at {server}: {reason}; the head needs pip install 'ray[default]'"


def resources(server: str) -> dict[str, float] | None:
    """Ray's resources of all nodes of the cluster together; None if that is not known."""
    rows = _rows(server, "nodes", "ALIVE", "=")
    if rows is None:
        return None
    found: dict[str, float] = {}
    for row in rows:
        for name, count in row.get("resources_total", {}).items():
            found[name] = found.get(name, 0) + count
    return found


def text(batch: BatchJob, holder: Sequence[str]) -> str:
    """The script that is the job. holder: the command that waits for its places, and then starts the driver."""
    return "\n".join(
        [
            "#!/bin/sh",
            f"cd {shlex.quote(str(batch.folder))} || exit",
            f"exec {shlex.join([*holder, *batch.command])} >>{shlex.quote(str(batch.log))} 2>&1",
            "",
        ]
    )


def submit(server: str, file: Path) -> str:
    """The job's name. Raises BadInput with Ray's reason if it does not take the file."""
    name = f"volary-{file.parent.name}-{secrets.token_hex(4)}"
    job = f"{name}@{server}"
    variables = {JOB: job, "RAY_JOB_STOP_WAIT_TIME_S": str(_SAVES_S)}
    variables |= {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
    asked = {
        "entrypoint": shlex.quote(str(file)),
        "submission_id": name,
        "runtime_env": {"env_vars": variables},
        "metadata": {"volary_run": str(file.parent)},
    }
    answer = _ask(server, "/api/jobs/", asked, TAKEN_S)
    if not answer.is_good:
        raise BadInput(f"engine: Ray does not take the job: {answer.words}")
    return job


def states(jobs: Collection[str]) -> dict[str, JobState]:
    """How these jobs are; without those whose servers do not answer now."""
    servers = {job.partition("@")[2] for job in jobs}
    found: dict[str, JobState] = {}
    for server in servers:
        answer = _ask(server, "/api/jobs/").decoded()
        if isinstance(answer, list):
            rows = {f"{row.get('submission_id')}@{server}": row for row in answer if isinstance(row, dict)}
            waits = _waits(server) if any(rows.get(job, {}).get("status") == "RUNNING" for job in jobs) else {}
            for job in jobs:
                if job.endswith(f"@{server}"):
                    found[job] = _state(rows.get(job), "" if waits is None else waits.get(job, "asks for its places"))
    return found


def cancel(job: str, *, if_waiting: bool) -> None:
    """Stop a job; with `if_waiting` only one that waits, and then its end is waited for."""
    if if_waiting and not ((state := states([job]).get(job)) and state.waiting):
        return
    name, _, server = job.partition("@")
    _wait_until(job, STARTED_S, lambda state: state.words != _STARTS)
    _ask(server, f"/api/jobs/{quote(name, safe='')}/stop", {})
    if if_waiting:
        _wait_until(job, STOPPED_S, lambda state: state.over)


def _wait_until(job: str, at_most_s: float, condition: Callable[[JobState], bool]) -> None:
    until = time.monotonic() + at_most_s
    while time.monotonic() < until and not ((state := states([job]).get(job)) and condition(state)):
        time.sleep(0.2)


def _state(job: Mapping[str, Any] | None, waits: str) -> JobState:
    if job is None:
        return JobState(waiting=False, over=True, words="unknown to Ray by now")
    status = words = str(job.get("status"))
    if status == "FAILED":
        code = job.get("driver_exit_code")
        why = f"status {code}" if code is not None else _Answer(0, job.get("message") or "").words
        words = f"FAILED ({why})"
    elif status == "RUNNING" and waits:
        status, words = "PENDING", f"PENDING ({waits})"
    return JobState(status == _STARTS, status in _OVER, words)


def _waits(server: str) -> dict[str, str] | None:
    """Reasons why jobs do not train, which run to Ray while their places are not there: empty of one that has them.

    None if that is not known.
    """
    if (rows := _rows(server, "placement_groups", "REMOVED", "!=")) is None:
        return None
    found = {}
    for row in rows:
        if bundles := row.get("bundles"):
            share = " and ".join(f"{count:g} {name}" for name, count in bundles[0].get("unit_resources", {}).items())
            why = (row.get("stats") or {}).get("scheduling_state", row.get("state"))
            words = "" if row.get("state") == "CREATED" else f"{len(bundles)} times {share}: {why}"
            found[(row.get("name") or "").rpartition("-")[0]] = words
    return found


def _rows(server: str, kind: str, state: str, predicate: str) -> list[dict[str, Any]] | None:
    """Ray's list of what there is of a kind, in a state or not in it."""
    how = {"filter_keys": "state", "filter_predicates": predicate, "filter_values": state}
    words = urlencode({"detail": 1, "limit": _MOST_ROWS, **how})
    answer = _ask(server, f"/api/v0/{kind}?{words}").decoded()
    try:
        return list(answer["data"]["result"]["result"])
    except (KeyError, TypeError):
        return None


def _ask(server: str, path: str, body: object = None, at_most_s: float = ANSWER_S) -> _Answer:
    """GET a path, or POST what is JSON. No redirection is followed: the token is for this server."""
    where = urlsplit(server)
    kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
    headers = {"Content-Type": "application/json"} | _token()
    try:
        connection = kind(where.hostname or "", where.port, timeout=at_most_s)
        try:
            sent = None if body is None else msgspec.json.encode(body)
            connection.request("GET" if sent is None else "POST", path, sent, headers)
            answer = connection.getresponse()
            return _Answer(answer.status, answer.read(_MOST_BYTES).decode(errors="replace"))
        finally:
            connection.close()
    except OSError as error:
        return _Answer(0, error.strerror or str(error))
    except http.client.HTTPException:
        return _Answer(0, "what is there does not speak HTTP")


def _token() -> dict[str, str]:
    """Ray's token, where its own commands would take it from."""
    if os.environ.get("RAY_AUTH_MODE") != "token":
        return {}
    found = os.environ.get("RAY_AUTH_TOKEN", "")
    with suppress(OSError):
        found = found or Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token").read_text()
    return {"Authorization": f"Bearer {found.strip()}"} if found.strip() else {}
