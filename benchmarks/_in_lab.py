"""A run in a lab whose ranks do something else than `volary train`: both sides of starting it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from volary.driver.ending import NoWatcher
from volary.lab import Lab
from volary.lab.training import LabTraining, train
from volary.run.directory import RunDirectory
from volary.session.spec import Session

HERE = Path(__file__).parent
AT_MOST_S = 3600.0
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # hosts of a lab have processors alone; torch's PowerSGD hook asks no tensor


@dataclass(frozen=True)
class Program(LabTraining):
    """A training whose ranks run `script`, of this folder, with the session's file and `argument`."""

    script: str = ""
    argument: str = ""

    @property
    def command(self) -> list[str]:
        """The command of each rank."""
        return [sys.executable, str(HERE / self.script), str(self.session), self.argument]


def run(
    session: Session,
    rate: str | None,
    script: str | None = None,
    argument: str = "",
    lab: Mapping[str, Any] = MappingProxyType({}),
) -> RunDirectory:
    """Train a session in a lab, a host a worker, with links of `rate`; its run lies in the session's folder.

    script: what ranks run in place of training, see `Program`. lab: more of it, see `volary.lab.Lab`. Raises LabError,
    and what a run raises.
    """
    file = Path(session.run.folder, "session.yaml")
    file.write_text(session.to_yaml(), encoding="utf-8")
    training = LabTraining(file) if script is None else Program(file, script=script, argument=argument)
    with Lab(hosts=session.strategy.workers, rate=rate, **lab) as made:
        return train(made, training, NoWatcher(), timeout_s=AT_MOST_S).directory


def be_rank(job: str) -> int:
    """Be a rank of the run that `run` started, as `volary.worker` is, with `job` ("module:function")."""
    # a benchmark's own side, which `run` is used by, loads no torch
    from volary.placement import find
    from volary.run.log import print_into
    from volary.run.machine.allocator import keep_freed_memory, take_huge_pages
    from volary.train.member.meeting import meet_for_session
    from volary.train.member.process import work

    keep_freed_memory()
    take_huge_pages()
    place = find()
    with meet_for_session(place, Path(sys.argv[1]), []) as member:
        print_into(member.directory.log(place.rank))
        return work(member, job)
