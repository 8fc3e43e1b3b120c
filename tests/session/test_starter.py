import re

import pytest

from volary.session import Choice, Session
from volary.session.starter import starter
from volary.train.optimizers.sgd import Sgd
from volary.train.schedules.cosine import Cosine

BEHIND_A_HASH = re.compile(r"( *)# (\w+: .*)")
LINES = starter().splitlines()
HIDDEN = [number for number, line in enumerate(LINES) if BEHIND_A_HASH.fullmatch(line) and number > 2]


def shown(*numbers):
    """The starter with these lines taken out of their comments."""
    return "\n".join(
        BEHIND_A_HASH.sub(r"\1\2", line) if number in numbers else line for number, line in enumerate(LINES)
    )


def test_the_starter_file_runs_at_once_with_two_workers(write):
    session = Session.read(write(starter()))
    assert session.strategy.workers == 2
    assert session.optimizer == Sgd(lr=0.05, momentum=0.5)
    assert session.schedule == Cosine(warmup=20)
    session.check()


@pytest.mark.parametrize("number", HIDDEN, ids=lambda number: LINES[number].split(":")[0].strip("# "))
def test_each_line_can_be_taken_out_of_its_comment_alone_and_is_the_default(number, write):
    assert Session.read(write(shown(number))) == Session.read(write(starter()))


def test_all_lines_can_be_taken_out_of_their_comments(write):
    assert len(HIDDEN) == 16
    assert Session.read(write(shown(*HIDDEN))) == Session.read(write(starter()))


@pytest.mark.parametrize(
    ("setting", "room"),
    [
        ("consistency", "volary.consistency"),
        ("exchange", "volary.exchange"),
        ("codec", "volary.codec"),
        ("name", "volary.train.optimizers"),
        ("name", "volary.train.schedules"),
    ],
)
def test_the_names_that_it_lists_are_all_that_there_are(setting, room):
    known = Choice(room).open().names()
    whole = re.sub(r",\n +# (?=\w+,)", ", ", starter()).splitlines()  # lists of names that go on in the next line
    lines = [line for line in whole if re.match(rf" *(# )?{setting}: ", line) and known[0] in line]
    assert len(lines) == 1
    assert all(re.search(rf"\b{name}\b", lines[0].rpartition("#")[2]) for name in known)
