import pytest

from volary.errors import SettingError
from volary.session import Period


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("2 epochs", Period(2, "epochs")),
        ("1 epoch", Period(1, "epochs")),
        ("500 steps", Period(500, "steps")),
        (" 1  step ", Period(1, "steps")),
        ("never", Period(0, "never")),
    ],
)
def test_periods_are_read_and_written_alike(text, period):
    assert Period.parse(text) == period
    assert Period.parse(str(period)) == period


@pytest.mark.parametrize(
    "text", ["0 steps", "-1 epochs", "1.5 epochs", "steps", "5", "5 minutes", "", "5 steps ago", "٣ steps"]
)
def test_anything_else_is_refused_with_what_is_accepted(text):
    with pytest.raises(SettingError) as caught:
        Period.parse(text)
    assert str(caught.value) == (
        f"is {text!r}; accepted: '<n> steps', '<n> epochs' (n a whole number, 1 or more) or 'never'"
    )


def test_impossible_periods_cannot_be_made():
    for count, unit in [(0, "steps"), (1, "never"), (1, "minutes"), (1.5, "epochs"), (True, "epochs")]:
        with pytest.raises(SettingError):
            Period(count, unit)


def test_a_period_ends_after_every_so_many_steps():
    assert [step for step in range(1, 10) if Period(2, "epochs").ends(step, steps_per_epoch=2)] == [4, 8]
    assert [step for step in range(1, 10) if Period(3, "steps").ends(step, steps_per_epoch=2)] == [3, 6, 9]
    assert not any(Period(0, "never").ends(step, steps_per_epoch=2) for step in range(1, 10))
    assert Period(0, "never").in_steps(5) is None


def test_a_period_ends_with_the_batch_that_its_last_step_is_in():
    every = Period(3, "steps")
    assert [every.ends_within(before, after, 2) for before, after in [(0, 2), (2, 4), (4, 4), (4, 9), (9, 11)]] == [
        False,
        True,
        False,
        True,
        False,
    ]


def test_the_first_period_is_passed_once():
    first = Period(2, "epochs")
    pairs = [(0, 3), (3, 4), (3, 9), (4, 5), (7, 8)]
    assert [first.passes(before, after, 2) for before, after in pairs] == [False, True, True, False, False]
    assert not Period(0, "never").passes(0, 9, 2)
