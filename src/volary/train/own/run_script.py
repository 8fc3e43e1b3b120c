"""A worker's job in a run of a user's own loop: join, compare, call the function, keep what it returns."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from volary.comm.groups.gloo import cut
from volary.errors import BadInput, NotSaved, Stopped
from volary.run.disk import TRY_AGAIN_AFTER_S, Disk, refusal, replace_file
from volary.session.reference import UserObject
from volary.session.script import Script
from volary.train.assemble import choose_device
from volary.train.coordinator import Outcome
from volary.train.member.compare import code_facts, compare
from volary.train.optimizers._uncompiled import spare_the_compiler
from volary.train.own.own_loop import Worker
from volary.train.run_session import joined
from volary.train.state.seeds import seed_all
from volary.train.state.state_file import packed, unpacked

_ACCEPTED = (
    "tensors, numbers, text, NumPy arrays, and lists, tuples and dicts of these (of a module, return its state_dict())"
)

if TYPE_CHECKING:
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.recording.recorder import Recorder


def run_script(member: Membership, recorder: Recorder, pulse: Pulse) -> Outcome:
    """Call the run's function as one of its ranks. Raises what it raises."""
    place, directory = member.place, member.directory
    script = Script.read(directory.session)
    device = choose_device(script.device, place.local_rank, place.world_size)
    function = script.loaded()
    with joined(member, recorder, device, script.strategy.backend) as group:
        own = {"function": UserObject.found_from(script.function, Path.cwd(), {})}
        compare(group.bulletin, "code", code_facts(own))
        recorder.enter("starting")
        seed_all(script.seed)
        spare_the_compiler()
        if place.rank == 0:
            recorder.note(device=device)
        recorder.starting("running your function")
        worker = Worker(script, group, recorder, pulse, device, place.local_rank)
        pulse.can_finish(saves=False)  # the function may keep what it has when it is asked to end
        try:
            value = function(worker)
        except Stopped:
            return "stopped"
        except BaseException:
            cut()  # the exchange's thread may wait for ranks that will never come
            raise
        finally:
            worker.close()
    value, refused = handed_back(value)
    if "" in refused:
        raise BadInput(f"train(worker) returned a {refused['']}; accepted: {_ACCEPTED}")
    for where, kind in refused.items():
        recorder.event(
            "warning",
            text=f"what train(worker) returned at {where} is a {kind}, and comes back as None; accepted: {_ACCEPTED}",
        )
    _keep(directory.results / f"rank-{place.rank}.pt", packed(value))
    return "finished"


def handed_back(value: Any, where: str = "") -> tuple[Any, dict[str, str]]:
    """What can be handed back of a value, and by its place the type of each part that cannot, and is None."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        value = torch.tensor(value)
    if _loads(value):
        return value, {}
    if not isinstance(value, dict | list | tuple):
        return None, {where: type(value).__name__}
    refused: dict[str, str] = {}
    parts = []
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        found, missing = handed_back(part, f"{where}[{key!r}]")
        parts.append((key, found))
        refused |= missing
    if isinstance(value, dict):
        return dict(parts), refused
    return (list if isinstance(value, list) else tuple)(part for _, part in parts), refused


def _loads(value: Any) -> bool:
    try:
        unpacked(packed(value), Path("result"))
    except Exception:  # whatever pickle says of a type, and what would not be loaded
        return False
    return True


def _keep(path: Path, data: bytes) -> None:
    """Write what the function returned, which nobody could have again without training anew."""
    for wait_s in (*TRY_AGAIN_AFTER_S, None):
        try:
            replace_file(Disk(), path, data)
            return
        except OSError as error:
            if wait_s is None:
                raise NotSaved(
                    f"what train(worker) returned could not be written: {refusal(error, path, len(data))}"
                ) from error
            time.sleep(wait_s)
