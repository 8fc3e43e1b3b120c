"""What do codecs cost in accuracy?

    python benchmarks/accuracy.py [--quick] [--only NAME] [--json FILE]

The same training (_accuracy.py) with every codec at its defaults, with factors, with onebit without error feedback,
and with none, on 2 workers on this machine, where what error feedback does is seen best. A training is 1000 steps, done
with three seeds (--quick: 200 steps, one seed); nothing but the strategy differs. value and peer_value: the mean
accuracy on the validation samples, in percent, of this way and of none. ratio: the difference of the two in points,
positive where accuracy was lost. Above the table stand, of each, the least and most of its seeds, and the bytes that a
worker sent in a step.
"""

from __future__ import annotations

from _accuracy import WORSE, Case, row
from _report import arguments, report
from volary.codec import ROOM

NONE = "none"
CASES = {
    # in shared memory nothing would be sent
    NONE: Case({"exchange": {"name": "allreduce", "route": "torch"}}),
    **{name: Case({"codec": name}) for name in ROOM.names() if not ROOM.load(name)().chooses and name != NONE},
    "onebit-without-feedback": Case({"codec": {"name": "onebit", "feedback": False}}, WORSE),
    "factors": Case({"codec": "factors", "exchange": {"name": "allreduce", "route": "torch"}}),
}


def main() -> None:
    """Train all that are asked for, and none, which they are compared with."""
    options, none = arguments(__doc__, list(CASES)), (NONE, CASES[NONE])
    report([row(name, case, none, options) for name, case in CASES.items() if options.wants(name)], options.json)


if __name__ == "__main__":
    main()
