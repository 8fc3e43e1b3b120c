"""Volary: distributed deep-learning training on PyTorch, every published way as settings of one session.

from volary import Session
result = Session(network="lenet", data={"source": "digits"}, strategy={"workers": 2}).train()

import volary
worker = volary.init()                  # a loop of your own; see docs/own-loop.md
volary.launch(train, workers=2)         # a function as a run, from Python or a notebook
volary.store.serve(workers=2)           # tensors by key, for those who want only that; see docs/store.md
"""

TYPE_CHECKING = False  # as typing's, without importing it: Ctrl-C in this moment would end in a traceback
if TYPE_CHECKING:
    from typing import Any

    from volary import store as store
    from volary.api import Result as Result
    from volary.api import launch as launch
    from volary.session.spec import Session as Session
    from volary.train.factors.groups import parameter_groups as parameter_groups
    from volary.train.own.startup.init import init as init
    from volary.train.own.worker import Worker as Worker

__version__ = "0.1.0"

_HOME = {
    "Session": "volary.api",  # which makes session.train() train
    "launch": "volary.api",
    "Result": "volary.api",
    "init": "volary.train.own.startup.init",
    "Worker": "volary.train.own.worker",
    "parameter_groups": "volary.train.factors.groups",
}
__all__ = ["Result", "Session", "Worker", "init", "launch", "parameter_groups", "store"]


def __getattr__(name: str) -> "Any":
    """Import a public name when it is first used: the command line stays quick."""
    from importlib import import_module

    if name == "store":
        return import_module("volary.store")
    if name not in _HOME:
        raise AttributeError(f"module 'volary' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
