"""What do local steps, elastic averaging and gossip save on slow links, and what do they cost in accuracy?

    python benchmarks/consistency.py [--quick] [--only NAME] [--json FILE]

`local-100m`, `diloco-100m`: seconds of a step of the AlexNet-like network (34 million parameters, 137 MB) on 4 hosts at
100 Mbit/s in the lab, against DistributedDataParallel's: the turns of exchange.py, which says how; ours is of whole
periods of 16 steps, with all exchanges that belong to them.

`mnist-...`: each model at settings that are good for it, against bsp: the trainings of _accuracy.py with 4 workers on
this machine. value and peer_value: the mean accuracy over three seeds (--quick: 200 steps and one seed, which says
nothing of half a point); ratio: points that were lost.

`trunk-...`: MNIST on two pairs of hosts, whose trunks carry 30 Mbit/s and whose links 1 Gbit/s, one worker always 3
times slower (_server_models.py says how): median seconds until 98 % of the validation images are right, and how many
times sooner that is than with bsp over all-reduce, which takes its turn with each of three seeds (--quick: one).

Rows in the lab need root, and are skipped elsewhere with the reason. A row of `-100m` takes three to five minutes, one
of `trunk-` two a seed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import _accuracy
import _server_models as models
from _exchange_cases import FC
from _exchange_cases import Case as LabCase
from _exchange_steps import DDP, Question, answer, found_in
from _report import Options, Row, arguments, report
from volary.errors import DataError
from volary.lab import LabError

PERIOD = 16
OUTER = {"name": "sgd", "lr": 0.7, "momentum": 0.9, "nesterov": True}
BEHIND = {"name": "allreduce", "route": "torch", "behind": True}
DILOCO = {"name": "local", "period": PERIOD, "outer": OUTER}
STREAMING = DILOCO | {"fragments": 2, "alpha": 0.5}
# with a momentum of 0.9 it loses points here, as what others have changed comes a turn late
EAGER = DILOCO | {"fragments": 2, "eager": True, "outer": OUTER | {"momentum": 0.5}}
NOLOCO = {"name": "gossip", "graph": "pairs", "period": 8, "momentum": 0.5, "lr": 0.7, "gamma": 0.9}

SLOW_LINKS: dict[str, Any] = FC | {"rate": "100mbit", "warm_up": PERIOD, "period": PERIOD}
STEPS = {
    "local-100m": Question(
        LabCase(**SLOW_LINKS, strategy={"consistency": {"name": "local", "period": PERIOD}}),
        DDP,
        "at least 12",
        times=True,
    ),
    "diloco-100m": Question(
        LabCase(
            **SLOW_LINKS,
            strategy={"consistency": STREAMING | {"fragments": 4}, "codec": "int8", "exchange": BEHIND},
        ),
        DDP,
        "at least 40",
        times=True,
    ),
}

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
    "ssp": {"consistency": "ssp", "exchange": "server"},
    "backup": {"consistency": "backup", "exchange": "server"},
    "async": {"consistency": "async", "exchange": "server"},
}
GROUPS, TRUNK = 2, "30mbit"
EPOCHS = 2.5


def main() -> None:
    """Measure the rows that are asked for."""
    rows: dict[str, Callable[[Options], Row]] = {
        **{name: partial(_step, name, question) for name, question in STEPS.items()},
        **{f"mnist-{name}": partial(_accuracy_of, name) for name in MODELS if name != BSP},
        **{f"trunk-{name}": partial(_behind_a_trunk, name) for name in MODELS if name != BSP},
    }
    options = arguments(__doc__, list(rows))
    found = []
    for name, row in rows.items():
        if options.wants(name):
            try:
                found.append(row(options))
            except (LabError, DataError) as reason:
                print(f"{name}: skipped: {reason}")
    report(found, options.json)


def _step(name: str, question: Question, options: Options) -> Row:
    return answer(name, question, found_in(question.case, quick=options.quick))


def _accuracy_of(name: str, options: Options) -> Row:
    return _accuracy.row(f"mnist-{name}", _case(name), (BSP, _case(BSP)), options)


@cache
def _case(name: str) -> _accuracy.Case:
    return _accuracy.Case({"workers": 4, **MODELS[name]})


def _behind_a_trunk(name: str, options: Options) -> Row:
    seeds = models.SEEDS[:1] if options.quick else models.SEEDS
    ours, theirs = ([_trained(one, seed) for seed in seeds] for one in (name, BSP))
    times = [models.times_sooner(one, other) for one, other in zip(ours, theirs, strict=True)]
    return Row(
        name=f"trunk-{name}",
        value=statistics.median(map(models.reached_or_never_s, ours)),
        unit="s",
        peer="bsp-allreduce",
        peer_value=statistics.median(map(models.reached_or_never_s, theirs)),
        ratio=statistics.median(times),
        wanted="above 1",
        better="higher",
    )


@cache
def _trained(name: str, seed: int) -> models.Trained:
    lab: Mapping[str, Any] = {"groups": GROUPS, "trunk": TRUNK}
    return models.ours(MODELS[name], models.SLOW, EPOCHS, seed, lab)


if __name__ == "__main__":
    main()
