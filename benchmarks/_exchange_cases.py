"""The trainings that exchange.py measures: a network, its data, a lab, and the settings that ours has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from _in_lab import HERE
from volary.session.spec import Session
from volary.train.strategies.comparison import QUAD
from volary.train.strategies.profile import PROFILED_STEPS, WARM_STEPS

LOSSLESS = {"codec": "auto"}
LOSSY = {"codec": {"name": "auto", "allow": ["onebit"]}}
ANY = {"codec": {"name": "auto", "allow": ["onebit", "powersgd", "int8"]}}


@dataclass(frozen=True, eq=False)
class Case:
    """A training in a lab of `hosts` hosts, one process each, whose links carry `rate`.

    network, source and strategy: as in a session. share: samples of a step a rank. warm_up: steps until ours has found
    its pace. peers: the kinds of peers (_exchange_peers.py) that take turns with it, if any. period: a turn of ours is
    of whole ones, of so many steps.
    """

    network: Any
    source: Mapping[str, Any]
    share: int
    hosts: int
    rate: str | None
    strategy: Mapping[str, Any] = field(default_factory=dict)
    warm_up: int = WARM_STEPS + PROFILED_STEPS + 1
    peers: Sequence[str] = ("DDP",)
    period: int = 1

    def session(self, folder: str, **sections: Any) -> Session:
        """Its session, with runs below `folder`; sections: more of it, in place of these."""
        settings: dict[str, Any] = {
            "network": self.network,
            "data": {"source": dict(self.source), "batch_size": self.share * self.hosts},
            "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9},
            "train": {"steps": 10**9, "device": "cpu", "compare_replicas": "never"},
            "evaluate": {"every": "never"},
            "checkpoint": {"every": "never"},
            # the peer's turns must not look like a hang
            "strategy": {"workers": self.hosts, "suspect_after_s": 300, "give_up_after_s": 600, **self.strategy},
            "run": {"folder": folder},
        }
        return Session(**(settings | sections))


def _images(classes: int) -> dict[str, Any]:
    return {"name": "synthetic", "shape": (3, 32, 32), "classes": classes, "samples": 4096}


ALEXNET = f"{HERE / '_networks.py'}:alexnet_like"
FC: dict[str, Any] = {"network": ALEXNET, "source": _images(100), "share": 16, "hosts": 4}
RESNET: dict[str, Any] = {"network": f"{HERE / '_networks.py'}:resnet_widths", "source": _images(10), "share": 8}
LSTM: dict[str, Any] = {
    "network": "lstm",
    "source": {"name": "synthetic", "kind": "tokens", "shape": (35,), "classes": 10_000, "samples": 4096},
    "share": 20,
    "hosts": 4,
}
GPT: dict[str, Any] = {
    "network": {"name": "gpt", "dropout": 0.0, "tied": False},
    "source": {"name": "synthetic", "kind": "tokens", "shape": (128,), "classes": 65, "samples": 4096},
    "share": 4,
    "hosts": 4,
}
VGG: dict[str, Any] = {"network": f"{HERE / '_networks.py'}:vgg_like", "source": _images(100), "share": 8, "hosts": 4}
MOBILENET: dict[str, Any] = VGG | {"network": f"{HERE / '_networks.py'}:mobilenet_like"}
DILATED: dict[str, Any] = {
    "network": f"{HERE / '_networks.py'}:dilated",
    "source": {"name": "synthetic", "kind": "tokens", "shape": (512,), "classes": 65, "samples": 4096},
    "share": 2,
    "hosts": 4,
}
MIXER: dict[str, Any] = VGG | {"network": f"{HERE / '_networks.py'}:mixer"}
HOOKS = ("fp16", "PowerSGD")
EXACTLY: dict[str, Any] = {"strategy": LOSSLESS, "warm_up": QUAD}
ROUGHLY: dict[str, Any] = {"strategy": LOSSY, "warm_up": QUAD}

FC_1G = Case(**FC, rate="1gbit")
FC_1G_SHARDED = Case(**FC, rate="1gbit", strategy={"partition": "sharded"})
# DDP, too: it can train without exchange
FC_1G_SHARDED_3 = Case(
    **FC, rate="1gbit", strategy={"partition": {"name": "sharded", "level": 3}}, peers=("DDP", "FSDP2")
)
FC_UNLIMITED = Case(**FC, rate=None)
RESNET_1G_2 = Case(**RESNET, hosts=2, rate="1gbit")
RESNET_1G_2_ONEBIT = Case(**RESNET, hosts=2, rate="1gbit", strategy={"codec": "onebit"})
RESNET_1G_2_POWERSGD = Case(**RESNET, hosts=2, rate="1gbit", strategy={"codec": "powersgd"}, peers=("PowerSGD",))
RESNET_1G = Case(**RESNET, hosts=4, rate="1gbit")
RESNET_UNLIMITED = Case(**RESNET, hosts=4, rate=None)
FC_100M_LOSSLESS = Case(**FC, **EXACTLY, rate="100mbit")
FC_100M_LOSSY = Case(**FC, **ROUGHLY, rate="100mbit", peers=("PowerSGD",))
FC_1G_LOSSLESS = Case(**FC, **EXACTLY, rate="1gbit", peers=("DDP", "fp16", "PowerSGD"))
FC_UNLIMITED_LOSSLESS = Case(**FC, **EXACTLY, rate=None)
RESNET_100M_LOSSY = Case(**RESNET, **ROUGHLY, hosts=4, rate="100mbit")
LSTM_100M_LOSSLESS = Case(**LSTM, **EXACTLY, rate="100mbit")
LSTM_100M_LOSSY = Case(**LSTM, **ROUGHLY, rate="100mbit")
GPT_1G = Case(**GPT, rate="1gbit")
GPT_100M = Case(**GPT, rate="100mbit")
GPT_1G_LOSSY = Case(**GPT, rate="1gbit", strategy=ANY, warm_up=QUAD, peers=HOOKS)
GPT_100M_LOSSY = Case(**GPT, rate="100mbit", strategy=ANY, warm_up=QUAD, peers=HOOKS)
DILATED_1G = Case(**DILATED, rate="1gbit")
DILATED_100M = Case(**DILATED, rate="100mbit")
DILATED_1G_LOSSY = Case(**DILATED, rate="1gbit", strategy=ANY, warm_up=QUAD, peers=HOOKS)
DILATED_100M_LOSSY = Case(**DILATED, rate="100mbit", strategy=ANY, warm_up=QUAD, peers=HOOKS)
MIXER_1G = Case(**MIXER, rate="1gbit")
MIXER_100M_LOSSY = Case(**MIXER, rate="100mbit", strategy=ANY, warm_up=QUAD, peers=HOOKS)

# auto against each single choice: with loss, and without
NETWORKS = {
    "fc": FC, "resnet": RESNET | {"hosts": 4}, "lstm": LSTM, "gpt": GPT, "vgg": VGG, "mobilenet": MOBILENET,
    "dilated": DILATED, "mixer": MIXER,
}  # fmt: skip
RATES = ("100mbit", "1gbit", None)
SINGLE = {"exact": ("none", "factors"), "lossy": ("none", "factors", "onebit", "powersgd", "int8")}
CHOSEN = {"exact": LOSSLESS["codec"], "lossy": ANY["codec"]}
