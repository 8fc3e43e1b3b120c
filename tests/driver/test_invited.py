"""Who is let in by an invitation: within its time, as many as it is for, and with the key of the run from then on."""

from __future__ import annotations

import pytest

from volary.comm.control.errors import BadMessage
from volary.comm.control.service import CLOSE
from volary.driver.servers.invited import InvitationService
from volary.driver.servers.joining import JoinService
from volary.driver.watching.failure_detector import FailureDetector, Rules
from volary.run.launch.invitation import Terms

KEY = bytes(range(32))


def service(closed: str = "") -> InvitationService:
    watch = FailureDetector(2, Rules(5, 10, 120), now=0.0)
    return InvitationService(JoinService(watch, lambda _: closed, lambda _: None), KEY)


def asked(of: InvitationService, terms: Terms, workers: int = 1) -> dict[str, object]:
    (_, answer), (_, last) = of.opened(1, {"workers": workers, "terms": str(terms)}, 0.0)
    assert last is CLOSE
    return answer


def test_as_many_are_let_in_as_it_is_for_at_once_or_one_after_the_other():
    of, terms = service(), Terms.made(3, 60)
    assert asked(of, terms, 4) == {"refused": "the invitation is for 3 workers; accepted: --workers 3 or fewer"}
    assert asked(of, terms, 2) == {"ranks": [2, 3], "key": KEY}
    used = "the invitation is for 3 workers, and was used by 2; accepted: a new one, by volary invite"
    assert asked(of, terms, 2) == {"refused": used}
    assert asked(of, terms) == {"ranks": [4], "key": KEY}
    assert str(asked(of, terms)["refused"]).startswith("the invitation is for 3 workers, and was used by 3; accepted")
    assert asked(of, Terms.made(1, 60)) == {"ranks": [5], "key": KEY}, "another invitation is none of that one's"


def test_nobody_is_let_in_once_it_has_expired():
    assert str(asked(service(), Terms.made(1, -1))["refused"]).startswith("the invitation has expired, at 20")


def test_a_run_that_lets_nobody_in_gives_no_key_and_uses_nothing_of_the_invitation():
    of, terms = service("it is ending"), Terms.made(1, 60)
    assert asked(of, terms) == asked(of, terms) == {"refused": "it is ending"}


@pytest.mark.parametrize(
    "hello",
    [{}, {"workers": 1}, {"workers": 0, "terms": "0123456789abcdef.1.9999999999"}, {"workers": 1, "terms": "all"}],
    ids=str,
)
def test_a_hello_without_terms_that_were_proved_is_refused(hello):
    with pytest.raises(BadMessage):
        list(service().opened(1, hello, 0.0))
