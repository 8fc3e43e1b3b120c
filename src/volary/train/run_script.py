"""A worker's job in a run of a user's own loop: join, compare, call the function, keep what it returns."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from volary.comm.gloo import cut
from volary.errors import BadInput, NotSaved, Stopped
from volary.run.disk import TRY_AGAIN_AFTER_S, Disk, refusal, replace_file
from volary.session.reference import UserObject
from volary.session.script import Script
from volary.train.assemble import choose_device
from volary.train.compare import code_facts, compare
from volary.train.loop import Outcome
from volary.train.own_loop import Worker
from volary.train.run_session import joined
from volary.train.seeds import seed_all

if TYPE_CHECKING:
    from volary.train.process import Membership
    from volary.train.pulse import Pulse
    from volary.train.recorder import Recorder


def run_script(member: Membership, recorder: Recorder, pulse: Pulse) -> Outcome:
    """Call the run's function as one of its ranks. Raises what it raises."""
    place, directory = member.place, member.directory
    script = Script.read(directory.session)
    device = choose_device(script.device, place.local_rank, place.world_size)
    function = script.loaded()
    with joined(member, recorder, device, script.strategy.backend) as bulletin:
        compare(bulletin, "code", code_facts({"function": UserObject.found_from(script.function, Path.cwd(), {})}))
        recorder.enter("starting")
        seed_all(script.seed)
        if place.rank == 0:
            recorder.note(device=device)
        recorder.starting("running your function")
        worker = Worker(script, bulletin, recorder, pulse, device, place.local_rank)
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
    buffer = io.BytesIO()
    torch.save(value, buffer)
    try:
        torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)
    except Exception as error:  # whatever torch says of a type that it would not load
        raise BadInput(
            f"train(worker) returned a {type(value).__name__}; accepted: tensors, numbers, text, and lists, tuples and "
            "dicts of these (of a module, return its state_dict())"
        ) from error
    _keep(directory.results / f"rank-{place.rank}.pt", buffer.getvalue())
    return "finished"


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
