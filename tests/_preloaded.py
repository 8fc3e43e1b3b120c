"""Workers of tests are forked from this process: it imports, and does once, what takes long the first time."""

from __future__ import annotations

import gc
from contextlib import suppress
from importlib import import_module
from pkgutil import walk_packages

import numpy as np

import volary
from volary.codec.kernels.compiled import largest_magnitude
from volary.engine.processes.fork_server import ROOMS
from volary.fork_server import MODULES

# torch.distributed.tensor: imported by whoever first clips by norms or calls backward within a hook
OTHERS = ("pytest", "hypothesis", "psutil", "torch.distributed.tensor", "volary.engine.local")

for name in (*OTHERS, *MODULES):
    import_module(name)
for package in walk_packages(volary.__path__, "volary."):
    if package.name.split(".")[1] in ROOMS:
        with suppress(ImportError):  # of what is not installed here
            import_module(package.name)
largest_magnitude(np.zeros(1, np.uint32))  # Numba's registries are filled with the first call of a kernel
gc.collect()
gc.freeze()  # else the first collection in each worker would make a copy of its own of all that
