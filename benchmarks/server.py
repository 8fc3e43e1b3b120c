"""What does a parameter server carry, and what do the models that live on it cost, beside what a user would take?

    python benchmarks/server.py [--quick] [--only NAME] [--json FILE]

Transports (`tcp-...`, `shm-4`, `lab-...`): see _server_transports.py. Rows between hosts are measured in the lab
(docs/lab.md); where there cannot be one they are skipped, and the reason is printed.
"""

from __future__ import annotations

from _report import Row, arguments, report
from _server_transports import ROWS
from volary.lab import LabError


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(ROWS))
    rows: list[Row] = []
    for name, row in ROWS.items():
        if options.wants(name):
            try:
                rows.append(row(options))
            except LabError as reason:
                print(f"{name}: skipped: {reason}")
    report(rows, options.json)


if __name__ == "__main__":
    main()
