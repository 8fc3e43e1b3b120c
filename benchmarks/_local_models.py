"""Consistency models at settings that are good for them: what consistency.py compares."""

from __future__ import annotations

from typing import Any

PERIOD = 16
OUTER = {"name": "sgd", "lr": 0.7, "momentum": 0.9, "nesterov": True}
BEHIND = {"name": "allreduce", "route": "torch", "behind": True}
DILOCO = {"name": "local", "period": PERIOD, "outer": OUTER}
STREAMING = DILOCO | {"fragments": 2, "alpha": 0.5}
# with a momentum of 0.9 it loses points here, as what others have changed comes a turn late
EAGER = DILOCO | {"fragments": 2, "eager": True, "outer": OUTER | {"momentum": 0.5}}
NOLOCO = {"name": "gossip", "graph": "pairs", "period": 8, "momentum": 0.5, "lr": 0.7, "gamma": 0.9}

BSP = "bsp"
MODELS: dict[str, dict[str, Any]] = {
    BSP: {},
    "local": {"consistency": {"name": "local", "period": 8}},
    "diloco": {"consistency": DILOCO},
    "streaming": {"consistency": STREAMING, "exchange": BEHIND},
    "eager": {"consistency": EAGER, "exchange": BEHIND},
    "quorum": {"consistency": {"name": "local", "period": 8, "quorum": 3}, "exchange": "server"},
    "elastic": {"consistency": {"name": "elastic", "period": 4}},
    "elastic-server": {"consistency": {"name": "elastic", "period": 4}, "exchange": "server"},
    "gossip": {"consistency": "gossip"},
    "noloco": {"consistency": NOLOCO},
    "hogwild": {"consistency": {"name": "hogwild", "threads": 2, "period": 8}},
}
