"""Texts that a network has written are shown as they are, but for what a terminal or a page would obey."""

from __future__ import annotations

from page._made import slow_run
from volary.cli.command.main import run
from volary.page.questions.evaluations.texts import texts
from volary.page.questions.facts import facts
from volary.run.database.reader import RunReader


def test_they_are_told_by_step_in_the_page_in_show_and_in_what_happened(capsys):
    directory = slow_run()
    with RunReader(directory) as reader:
        found = texts(reader)
    assert [one["step"] for one in found] == [50, 100]
    assert found[1] == {"step": 100, "prompt": "To be", "text": "\nor 100\ufffd[0m"}
    told = facts(directory)
    assert told["writes"]
    assert "step 100: wrote To be or 100 [0m" in [one["text"] for one in told["happened"]]
    assert run(["show", "slow-1"]) == 0
    assert "written at step 100\n  To be\n  or 100 [0m\n" in capsys.readouterr().out
