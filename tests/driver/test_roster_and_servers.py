"""The driver of a run over servers says from which checkpoint the run continues."""

from __future__ import annotations

import math
from pathlib import Path

from volary.driver.servers.roster_and_servers import RosterAndServers
from volary.driver.servers.settings import roster_settings
from volary.run.checkpoints import ROSTER, Checkpoints
from volary.run.database.journal import Journal
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.session import Session


def test_servers_resume_from_the_newest_checkpoint_and_say_so() -> None:
    data = {"source": {"name": "synthetic", "shape": [4], "samples": 20}, "batch_size": 4}
    one = Session(network="softmax", data=data, strategy={"exchange": "server", "codec": "topk"})
    directory = RunDirectory.create(Path("runs"), "it", "it", one.to_yaml())
    checkpoints = Checkpoints(directory.checkpoints)
    checkpoints.begin(3)
    checkpoints.commit(3, 1, {ROSTER: checkpoints.write(3, ROSTER, b'{"closings": 3, "samples": 12}')}, None)
    journal = Journal(directory.database)
    served = RosterAndServers(directory, one, roster_settings(one), journal, one.engine)
    journal.close()
    assert served.steps(0) == 3
    with RunReader(directory) as reader:
        assert [event.kind for event in reader.events()] == ["resumed"]  # and no warning: residuals are in it


def test_an_evaluation_that_gave_no_number_is_a_warning() -> None:
    data = {"source": {"name": "synthetic", "shape": [4], "samples": 20}, "batch_size": 4}
    one = Session(network="softmax", data=data, strategy={"exchange": "server"})
    directory = RunDirectory.create(Path("runs"), "it", "it", one.to_yaml())
    journal = Journal(directory.database)
    served = RosterAndServers(directory, one, roster_settings(one), journal, one.engine)
    for step, loss in ((5, 0.5), (10, math.nan)):
        figures = {"loss": loss, "accuracy": 0.25}
        served._on_event("evaluated", None, {"step": step, "figures": figures, "metric": "accuracy", "best": False})
    journal.close()
    with RunReader(directory) as reader:
        (warning,) = reader.events(kind="warning")
        assert (warning.step, warning.data["text"].partition(":")[0]) == (10, "the evaluation gave loss nan")
