"""Labels that explain a file of a run's weights a year later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import volary
from volary.driver.tasks.task import session_of
from volary.monitor.outline import outline
from volary.run.database.reader import RunReader
from volary.session.resolved import flow, plain

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory

_KNOWN = ("classes", "input_shape")


def labels_of(run: RunDirectory, step: int) -> dict[str, str]:
    """Which network this is, how far it was trained, and in which session."""
    about: dict[str, str]
    if own := outline(run.session).own_loop:
        about = {"loop": own}
    else:
        session = session_of(run)
        about = {"network": flow(plain(session)["network"]), "session": session.digest()}
    with RunReader(run) as reader:
        info = reader.info()
    about |= {name: info[name] for name in _KNOWN if name in info}
    # format: what readers ask of files for PyTorch
    return {"format": "pt", "step": str(step), "run": run.name, "volary": volary.__version__, **about}
