"""Writes the first checkpoint of a run whose network begins from weights: `python -m volary.train.beginning.write RUN`.

The driver starts it, which never imports torch. A refusal is printed; all else that is printed is the standard error's.
"""

from __future__ import annotations

import os
import sys

import torch

from volary.errors import RunError, VolaryError
from volary.run.checkpoints import Checkpoints
from volary.run.directory import RunDirectory
from volary.session.spec import Session
from volary.train.beginning.first_checkpoint import untrained
from volary.train.beginning.from_weights import begin
from volary.train.model import build_model
from volary.train.state.seeds import seed_all


def main() -> int:
    """Write it; returns the exit code."""
    out = os.dup(1)
    os.dup2(2, 1)  # the user's code may print
    try:
        _write(RunDirectory.existing(sys.argv[1]))
    except VolaryError as error:
        os.write(out, error.report.encode())
        return error.exit_code
    return 0


def _write(directory: RunDirectory) -> None:
    session = Session.read(directory.session)
    seed_all(session.train.seed)  # as each worker does: what is drawn has the values that it would have
    model = build_model(session, torch.device("cpu"))
    begin(model)
    try:
        untrained(model.module).write(Checkpoints(directory.checkpoints))
    except OSError as error:
        raise RunError(f"{directory.path}: the weights that it begins with cannot be written: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
