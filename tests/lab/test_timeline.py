import pytest

from volary.errors import SettingError
from volary.lab.network.topology import LabTopology
from volary.lab.timeline import LinkChange, Timeline


class Told:
    """A lab that only remembers what it was told."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments))


@pytest.mark.parametrize(
    ("text", "call", "words"),
    [
        ("10s:cut:3", ("cut", 3), "10 s: link of host 3 cut"),
        ("0.5:restore:0", ("restore", 0), "0.5 s: link of host 0 restored"),
        ("250ms:rate:2:50mbit", ("set_rate", 2, "50mbit"), "0.25 s: link of host 2 now 50mbit"),
        ("3s:trunk:1:unlimited", ("set_trunk", 1, "unlimited"), "3 s: trunk of group 1 now unlimited"),
    ],
)
def test_a_change_does_and_says_what_is_written(text, call, words):
    told, change = Told(), LinkChange.parse(text)
    change.make(told)
    assert (told.calls, str(change)) == ([call], words)


@pytest.mark.parametrize(
    "text", ["cut:3", "10s:cut", "10s:cut:x", "10s:burn:3", "10s:rate:3", "10s:cut:3:1mbit", "s:cut:1"]
)
def test_what_is_no_change_is_refused_with_what_is_accepted(text):
    with pytest.raises(SettingError, match="accepted: SECONDSs:cut:HOST"):
        LinkChange.parse(text)


def test_changes_come_once_and_in_the_order_of_their_time():
    timeline = Timeline(["5s:restore:1", "2s:cut:1"], LabTopology.of(2))
    assert (timeline.next_s, timeline.due(1.9)) == (2, [])
    assert [change.kind for change in timeline.due(7)] == ["cut", "restore"]
    assert (timeline.next_s, timeline.due(9)) == (None, [])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("1s:cut:2", "there is no host 2"), ("1s:trunk:0:1mbit", "no trunk of group 0; accepted: none")],
)
def test_a_change_to_what_is_not_there_is_refused_at_once(text, sentence):
    with pytest.raises(SettingError, match=sentence):
        Timeline([text], LabTopology.of(2))
