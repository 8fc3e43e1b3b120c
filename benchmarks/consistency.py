"""What do local steps, elastic averaging and gossip save on slow links, and what do they cost in accuracy?

    python benchmarks/consistency.py [--quick] [--only NAME] [--json FILE]

`local-100m`, `diloco-100m`: seconds of a step of the AlexNet-like network (34 million parameters, 137 MB) on 4 hosts at
100 Mbit/s in the lab, against DistributedDataParallel's: the turns of exchange.py, which says how; ours is of whole
periods of 16 steps, with all exchanges that belong to them.

`mnist-...`: each model at settings that are good for it, against bsp: the trainings of _accuracy.py with 4 workers on
this machine. value and peer_value: the mean accuracy over three seeds (--quick: 200 steps and one seed, which says
nothing of half a point); ratio: points that were lost.

`text-...`: a small transformer's loss on tiny-shakespeare with each model, against bsp's (_text_loss.py says how).

`loss-100m`, `loss-100m-local`: a small transformer on 4 hosts at 100 Mbit/s (_time_to_loss.py says how): how many times
sooner the best of our local models is at a fixed loss than DistributedDataParallel with its best hook, and than torch's
own local SGD and torchft's DiLoCo, where that is installed.

`trunk`: every model and exchange on two pairs of hosts behind trunks of 30 Mbit/s, one worker 3 times slower: seconds
to an accuracy (_behind_trunk.py says how); ratio: of the models that are right for the case, how far the last is behind
the best of all.

Rows in the lab need root, and are skipped elsewhere with the reason. With --quick a row takes up to eight minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import _accuracy
import _behind_trunk
import _text_loss
import _time_to_loss
from _exchange_cases import FC
from _exchange_cases import Case as LabCase
from _exchange_steps import DDP, Question, answer, found_in
from _local_models import BEHIND, BSP, MODELS, PERIOD, STREAMING
from _report import Options, Row, arguments, report
from volary.errors import DataError
from volary.lab import LabError

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


def main() -> None:
    """Measure the rows that are asked for."""
    rows: dict[str, Callable[[Options], Row]] = {
        **{name: partial(_step, name, question) for name, question in STEPS.items()},
        **{f"text-{name}": partial(_text_loss.row, name) for name in MODELS if name != BSP},
        **_time_to_loss.ROWS,
        **{f"mnist-{name}": partial(_accuracy_of, name) for name in MODELS if name != BSP},
        "trunk": _behind_trunk.row,
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


if __name__ == "__main__":
    main()
