"""What does a parameter server carry, and what do the models that live on it cost, beside what a user would take?

    python benchmarks/server.py [--quick] [--only NAME] [--json FILE]

Transports (`tcp-...`, `shm-4`, `lab-...`): see _server_transports.py. Rows between hosts are measured in the lab
(docs/lab.md); where there cannot be one they are skipped, and the reason is printed.

Training (`fc-step-server`, `slow-worker-...`, `random-pauses-ssp`): see _server_training.py. The time to an accuracy is
skipped where there is no `../shared/data/mnist` beside the checkout. --quick: each of these within four minutes.
"""

from __future__ import annotations

from _report import Row, arguments, report
from _server_training import ROWS as TRAINING
from _server_transports import ROWS as TRANSPORTS
from volary.errors import DataError
from volary.lab import LabError

ROWS = TRANSPORTS | TRAINING


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(ROWS))
    rows: list[Row] = []
    for name, row in ROWS.items():
        if options.wants(name):
            try:
                rows.append(row(options))
            except (LabError, DataError) as reason:
                print(f"{name}: skipped: {reason}")
    report(rows, options.json)


if __name__ == "__main__":
    main()
