"""Kinds of layers, one file each; the file's name is what a network's list says. Guide: docs/layers.md"""

from volary.plugins import Room

_FUNCTIONS = ("relu", "relu6", "leaky_relu", "elu", "selu", "gelu", "silu", "sigmoid", "tanh", "softplus", "abs")
_OPERATIONS = ("sum", "product", "maximum")
_NAMES = {name: ("activation", {"function": name}) for name in _FUNCTIONS} | {
    name: ("elementwise", {"operation": name}) for name in _OPERATIONS
}

ROOM = Room(__name__, "LAYER", protocol="volary.network.layers._base:LayerKind", aliases=_NAMES)
