"""Published networks, one file each; the file's name is the setting's value. Guide: docs/networks.md"""

from volary.plugins import Room

_DEPTHS = {"resnet": (18, 34, 50, 101, 152), "vgg": (11, 13, 16, 19)}  # each has its usual name, such as resnet18
_NAMES = {f"{name}{depth}": (name, {"depth": depth}) for name, depths in _DEPTHS.items() for depth in depths}

ROOM = Room(
    __name__,
    "NETWORK",
    protocol="volary.network.zoo._base:Network",
    aliases=_NAMES,
    by_setting=("layers", "caffe"),
    by_prefix=("timm", "torchvision"),
)
