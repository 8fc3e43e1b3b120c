import re

from volary.session import Session, starter
from volary.train.optimizers.sgd import Sgd


def test_the_starter_file_runs_at_once_with_two_workers(write):
    session = Session.read(write(starter()))
    assert session.strategy.workers == 2
    assert session.optimizer == Sgd(lr=0.05, momentum=0.9)
    session.check()


def test_what_it_shows_behind_a_hash_is_the_default(write):
    shown = re.sub(r"(?m)^( *)# ((?:  )?(?:\w+:|  \w+: \S+ ))", r"\1\2", starter())
    assert shown.count("\n#") < starter().count("\n#")
    assert Session.read(write(shown)) == Session.read(write(starter()))
