"""Update rules: torch.optim's, with their settings. One file each. Guide: docs/training.md"""

from volary.plugins import Room

ROOM = Room(__name__, "OPTIMIZER", protocol="volary.train.optimizers._base:OptimizerSettings")
