"""A rank of step_cpu.py: steps of each way of exchanging in turn, each in a stretch of time of its own.

A lab starts it on its hosts as `python _step_cpu_ranks.py session.yaml WANTED`, with WANTED as JSON: codecs (settings
by name), peers (kinds, of _exchange_peers.py) and steps (of a stretch).
"""

from __future__ import annotations

import json
import signal
import sys
import time
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from _exchange_peers import PEERS, Peers, of_one_rank
from _exchange_turns import CPU, Loop, volary
from _in_lab import be_rank
from _perf import ALONE, STRETCHES, mark_threads
from volary.run.checkpoints import Checkpoints
from volary.session.spec import Session
from volary.train.agreement.first_state import share_buffers
from volary.train.model import build_model
from volary.train.recording.recorder import Recorder
from volary.train.state.drafts import DirectoryDrafts
from volary.train.state.seeds import seed_all
from volary.train.trial import try_first
from volary.train.worker.connect import joined

if TYPE_CHECKING:
    from volary.run.verdict import Outcome
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse

WARM_STEPS = 5  # after the third chunks are put in order


def take_stretches(member: Membership, recorder: Recorder, _pulse: Pulse) -> Outcome:
    """The job: warm up each way of exchanging, then let it have its stretch, and write down when that was."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # there is nothing to save
    torch.set_num_threads(1)
    session = Session.read(member.directory.session)
    wanted: dict[str, Any] = json.loads(sys.argv[2])
    drafts = DirectoryDrafts(Checkpoints(member.directory.checkpoints), recorder, keep_last=1, keep_best=False)
    with joined(member, recorder, CPU) as group:
        seed_all(session.train.seed)
        model = build_model(session, CPU)
        share_buffers(model.module, group)
        tried = try_first(model, CPU, member.place, recorder)
        estimate = tried.estimate if tried else None
        peers = Peers(of_one_rank(session, group.size), model, deepcopy(model.module))
        made = {kind: peers.make(next(iter(PEERS[kind].values()))) for kind in wanted["peers"]}
        # without exchange: after a step with it, which the peer's reducer wants first
        loops: dict[str, Loop] = {kind: peer.run for kind, peer in made.items()}
        loops[ALONE] = next(iter(made.values())).run_alone
        found = {name: _stretch(loop, wanted["steps"]) for name, loop in loops.items()}
        for name, codec in wanted["codecs"].items():
            one = Session.read(member.directory.session, [f"strategy.codec={json.dumps(codec)}"])
            fresh, place = replace(model, module=deepcopy(model.module)), group.within(name)
            with volary(one, place, Recorder(group.rank), fresh, drafts, estimate) as ours:
                found[name] = _stretch(ours.run, wanted["steps"])
    if member.place.rank == 0:
        (member.directory.results / STRETCHES).write_text(json.dumps(found), encoding="utf-8")
    return "finished"


def _stretch(loop: Loop, steps: int) -> tuple[float, float]:
    """When it began and ended, by CLOCK_MONOTONIC."""
    loop(WARM_STEPS)
    mark_threads()
    distributed.barrier()
    began_s = time.monotonic()
    loop(steps)
    distributed.barrier()
    return began_s, time.monotonic()


if __name__ == "__main__":
    sys.exit(be_rank("_step_cpu_ranks:take_stretches"))
