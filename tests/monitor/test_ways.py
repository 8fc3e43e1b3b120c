"""How layers travel, as a run tells it: in lines while it goes on, in `volary show` afterwards."""

from __future__ import annotations

import io
from typing import Any

from monitor._made_runs import journal, new_run, rows, started
from volary.cli.show import _say_traffic, _say_ways
from volary.monitor.account import account
from volary.monitor.terminal.console import Console
from volary.run.database.traffic import Traffic

TABLE: list[list[Any]] = [
    ["0.weight", "exact", 10368, 0.00089, "nothing else takes it"],
    ["10.weight", "factors", 1572864, 0.158, "quicker than as it is"],
]


def test_the_table_of_ways_is_printed_when_it_is_chosen_and_shown_afterwards(capsys):
    directory, out = new_run(), io.StringIO()
    console = Console(stream=out)
    with journal(directory) as run, directory.lock():
        started(run, 46)
        console.started(directory)
        run.steps(rows(1, 3))
        run.event("ways", 0, 2, bytes_per_s=0, table=TABLE[:1])
        run.event("ways", 0, 3, bytes_per_s=12 * 2**20, table=TABLE)
        run.event("compared", 0, 3, step_s=[0.752, 0.801], stays=0)
        console.look()
        console.ended()
    said = out.getvalue()
    assert "representations chosen, links not measured\n" in said
    assert (
        "representations chosen, links carry 12.0 MiB/s\n"
        "  layer      representation  bytes     expected ms  why\n"
        "  0.weight   exact           10.1 KiB  0.89         nothing else takes it\n"
        "  10.weight  factors         1.5 MiB   158          quicker than as it is\n"
    ) in said
    assert "step 3: 752 ms a step with these, 801 ms with the next best: these stay\n" in said
    found = account(directory)
    assert found.as_dict()["ways"] == {"bytes_per_s": 12 * 2**20, "table": TABLE}
    _say_ways(found)
    shown = capsys.readouterr().out
    assert "representation of each layer since step 3, links carry 12.0 MiB/s" in shown
    assert "10.weight  factors " in shown


def test_bytes_are_shown_by_codec_and_route_with_what_was_saved(capsys):
    directory = new_run()
    with journal(directory) as run:
        started(run)
        run.steps(rows(1, 2))
        for rank in (0, 1):
            for _ in range(2):  # told in parts
                run.traffic(rank, [Traffic("none", "ring", 1024, 1024, 2048)])
                run.traffic(rank, [Traffic("onebit", "to owners and back", 2048, 2048, 32 * 4096)])
    found = account(directory)
    assert [(one.codec, one.sent_bytes, one.saved) for one in found.traffic] == [
        ("onebit", 8192, 1 - 1 / 32),
        ("none", 4096, 0.0),
    ]
    _say_traffic(found)
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()[2:]] == [
        "codec route sent received as they are saved",
        "onebit to owners and back 8.0 KiB 8.0 KiB 512.0 KiB 97%, 32 times fewer",
        "none ring 4.0 KiB 4.0 KiB 8.0 KiB -",
        "all 12.0 KiB 12.0 KiB 520.0 KiB 95%, 21.67 times fewer",
    ]
