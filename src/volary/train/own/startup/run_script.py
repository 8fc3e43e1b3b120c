"""A worker's job in a run of a user's own loop: join, compare, call the function, keep what it returns."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from volary.errors import BadInput, NotSaved, Stopped
from volary.run.disk import TRY_AGAIN_AFTER_S, Disk, refusal, replace_file
from volary.run.log import by_line
from volary.session.script import Script
from volary.train.coordinator import Outcome
from volary.train.member.compare import code_facts
from volary.train.own.saving.plain_values import ACCEPTED, keepable
from volary.train.own.startup.arguments import unpacked_arguments
from volary.train.own.startup.init import ended_as
from volary.train.own.startup.joining import worker_of
from volary.train.state.seeds import seed_all
from volary.train.state.state_file import packed
from volary.train.update.uncompiled import spare_the_compiler

_ACCEPTED = f"{ACCEPTED} (of a module, return its state_dict())"

if TYPE_CHECKING:
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.member.remote_directory import RemoteDirectory
    from volary.train.recording.recorder import Recorder


def run_script(member: Membership, recorder: Recorder, pulse: Pulse) -> Outcome:
    """Call the run's function as one of its ranks. Raises what it raises."""
    script = Script.read(member.directory.session)
    by_line()
    named = script.named(member.directory.path)
    function, facts = named.load(), code_facts({"function": named})
    args, kwargs = unpacked_arguments(member.directory.arguments)
    worker = None
    try:
        with worker_of(member, script, recorder, pulse, facts, "running your function") as worker:
            seed_all(script.seed)
            spare_the_compiler()
            value = function(worker, *args, **kwargs)
    except Stopped:
        return ended_as(worker)
    value, refused = keepable(value)
    if "" in refused:
        raise BadInput(f"train(worker) returned a {refused['']}; accepted: {_ACCEPTED}")
    for where, kind in refused.items():
        recorder.event(
            "warning",
            text=f"what train(worker) returned at {where} is a {kind}, and comes back as None; accepted: {_ACCEPTED}",
        )
    _keep(member.directory.results / f"rank-{member.place.rank}.pt", packed(value), member.remote)
    return "finished"


def _keep(path: Path, data: bytes, remote: RemoteDirectory | None = None) -> None:
    """Write what the function returned, which nobody could have again without training anew."""
    for wait_s in (*TRY_AGAIN_AFTER_S, None):
        try:
            if remote is None:
                replace_file(Disk(), path, data)
            else:
                remote.send_result(data)
            return
        except OSError as error:
            if wait_s is None:
                reason = str(error) if remote else refusal(error, path, len(data))
                raise NotSaved(f"what train(worker) returned could not be written: {reason}") from error
            time.sleep(wait_s)
