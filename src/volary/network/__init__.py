"""Networks, losses and flows: what is computed, on however many devices. Guide: docs/networks.md

zoo/ and losses/ hold the published ones, one file per name; blocks/ and criteria/ the torch code that they build from.
graph/ has the form of networks that are lists of layers, layers/ and fillers/ what these are made of.
Nothing here imports torch before something is built; `volary.network.flow` does, and is imported by workers only.
"""

from volary.network.criterion import Criterion
from volary.network.factory import build
from volary.network.loss_factory import build_loss
from volary.network.losses._base import Loss
from volary.network.zoo._base import Network

__all__ = ["Criterion", "Loss", "Network", "build", "build_loss"]
