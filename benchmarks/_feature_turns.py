"""A worker of features.py: the same training without a feature and with it, a turn each."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import torch

from _driven import FOUND
from _report import paired
from _step_turns import Turns, loop_of, training_of
from volary.session.spec import Session
from volary.train.worker.connect import joined

if TYPE_CHECKING:
    from volary.run.verdict import Outcome
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.recording.recorder import Recorder


def take_turns(member: Membership, recorder: Recorder, pulse: Pulse) -> Outcome:
    """The job: train the session as it is and with the overrides that are given, and write down the pairs."""
    pairs, turn_s, overrides = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    with joined(member, recorder, torch.device("cpu")) as group:
        sessions = [Session.read(member.directory.session), Session.read(member.directory.session, overrides)]
        trainings = [training_of(session, member, recorder, pulse, group) for session in sessions]
        without, ours = map(loop_of, trainings)
        turns = Turns(trainings[0], [ours, without], turn_s, of_processors=False)
        found = paired(lambda: turns.take(ours), lambda: turns.take(without), pairs)
        for training in trainings:
            training.replica.close()
    (member.directory.results / FOUND).write_text(json.dumps(asdict(found)), encoding="utf-8")
    return "finished"
