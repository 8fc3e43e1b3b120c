"""Networks, losses and flows: what is computed, on however many devices. Guide: docs/networks.md

zoo/ and losses/ hold the published ones, one file per name; blocks/ and criteria/ the torch code that they build from.
Nothing here imports torch before something is built; `volary.network.flow` does, and is imported by workers only.
"""

from volary.network._base import Network
from volary.network._build import build
from volary.network._build_loss import build_loss
from volary.network._criterion import Criterion
from volary.network._loss import Loss

__all__ = ["Criterion", "Loss", "Network", "build", "build_loss"]
