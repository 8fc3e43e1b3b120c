from pathlib import Path

from volary.session.pages.comments import comments_of
from volary.session.reading.fields import settings_of
from volary.session.reading.words import choice_in
from volary.session.reference_page import page
from volary.session.spec import Session

PAGE = Path(__file__).parents[2] / "docs" / "session.md"


def test_the_committed_page_is_the_one_that_the_specification_gives():
    told = "stale: run `python -m volary.session.reference_page docs/session.md`"
    assert PAGE.read_text(encoding="utf-8") == page(), told


def test_every_setting_of_every_section_and_plug_in_says_what_it_is():
    classes = [hint for hint in settings_of(Session).values() if choice_in(hint) is None]
    rooms = [choice for cls in (Session, *classes) for hint in settings_of(cls).values() if (choice := choice_in(hint))]
    plugins = [choice.open().load(name) for choice in rooms for name in choice.open().names()]
    silent = [
        f"{cls.__qualname__}.{name}"
        for cls in (*classes, *plugins)
        for name in settings_of(cls)
        if not comments_of(cls).get(name)
    ]
    assert silent == []


def test_a_setting_is_described_by_the_comments_on_its_own_lines():
    class Example:
        one: int = 1  # the first
        two: tuple[int, ...] = (
            1,  # begins here
            2,  # and ends there
        )
        # this is about nothing
        three: int = 3

    assert comments_of(Example) == {"one": "the first", "two": "begins here and ends there", "three": ""}
