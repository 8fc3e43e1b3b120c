"""The page without a mouse and without seeing it: what a keyboard reaches, what is named, what can be told apart."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

SOURCE = Path(__file__).resolve().parents[2] / "page"
AXE = SOURCE / "node_modules" / "axe-core" / "axe.min.js"
VIEWS = ["#/", "#/run/slow-1", "#/run/failed-1", "#/compare/lenet-digits-1,slow-1", "#/new", "#/queue"]
NAMED = (
    "button", "link", "textbox", "searchbox", "checkbox", "radio", "combobox", "slider", "img", "listbox", "option",
    "dialog", "region", "log",
)  # fmt: skip
STOPS = """() => {
    const all = "a[href], button, input, select, summary, [tabindex='0']";
    const how = { contentVisibilityAuto: true, visibilityProperty: true };
    const seen = (one) => !one.disabled && one.checkVisibility(how);
    const stop = (one) => seen(one) && (one.type !== "radio" || one.checked);
    window.stops = [...document.querySelectorAll(all)].filter(stop);
    window.reached = new Set();
    window.faint = [];
}"""
REACHED = """() => {
    const here = document.activeElement;
    if (here === document.body) return false;
    const again = window.reached.has(here);
    window.reached.add(here);
    const box = here.tagName === "g" && getComputedStyle(here.querySelector(".box"));
    const { outlineStyle, outlineWidth } = getComputedStyle(here);
    const outlined = outlineStyle !== "none" && parseFloat(outlineWidth) >= 2;
    if (!(box ? parseFloat(box.strokeWidth) >= 2 : outlined)) window.faint.push(here.outerHTML.slice(0, 120));
    return !again;
}"""
# without an experimental rule, for voice input: the boxes of the graph say more than what they show
_RULES = "{ rules: { 'label-content-name-mismatch': { enabled: false } } }"
VIOLATIONS = f"axe.run({_RULES}).then((all) => all.violations.map((one) => [one.id, one.nodes[0].html]))"
MISSED = "() => window.stops.filter((one) => !window.reached.has(one)).map((one) => one.outerHTML.slice(0, 120))"


def opened(page: Page, link: str, view: str) -> None:
    """With every card filled: those out of view are empty until they were in it."""
    page.goto(link + view)
    page.get_by_role("heading", level=1).wait_for()
    for card in page.locator("[data-card]").all():
        card.scroll_into_view_if_needed()
        card.locator("table, figure, pre, p, ul").first.wait_for(state="attached")
        card.get_by_text("reading …", exact=True).first.wait_for(state="detached")


@pytest.mark.slow  # a key for each control of each view
@pytest.mark.parametrize("view", VIEWS)
def test_every_control_is_reached_by_the_tab_key_and_shows_that_it_is(page, server, view):
    opened(page, server.link, view)
    page.evaluate("window.scrollTo(0, 0)")
    page.evaluate(STOPS)
    while True:
        page.keyboard.press("Tab")
        if not page.evaluate(REACHED):
            break
    assert page.evaluate(MISSED) == []
    assert page.evaluate("window.faint") == []


@pytest.mark.slow  # every card of each view is filled
@pytest.mark.parametrize("view", VIEWS)
def test_every_control_and_chart_has_a_role_and_a_name(page, server, view):
    opened(page, server.link, view)
    told = page.locator("body").aria_snapshot()
    nameless = [line for line in told.splitlines() if re.match(rf"\s*- ({'|'.join(NAMED)})(?! \")", line)]
    assert nameless == []
    undrawn = page.locator("canvas:visible").evaluate_all(
        "all => all.filter((one) => !one.closest('[role=img][aria-label]')).map((one) => one.outerHTML)"
    )
    assert undrawn == [], "a picture without words"


@pytest.mark.slow  # axe looks at the roles of all of them above
def test_buttons_boxes_lists_and_sliders_act_by_keys(page, server):
    from playwright.sync_api import expect

    opened(page, server.link, "#/run/slow-1")
    metrics = page.locator("[data-card=metrics]")
    metrics.get_by_role("slider").press("End")
    assert metrics.get_by_role("slider").input_value() == metrics.get_by_role("slider").get_attribute("max")
    metrics.get_by_label("log").press("Space")
    expect(metrics.get_by_label("log")).to_be_checked()
    metrics.get_by_role("combobox").press("ArrowDown")
    page.locator("[data-card=loss] summary").first.press("Enter")
    expect(page.locator("[data-card=loss] details").first).to_have_attribute("open", "")
    page.get_by_role("button", name="Delete …").press("Enter")
    dialog = page.get_by_role("dialog", name="Delete slow-1?")
    expect(dialog.get_by_role("button", name="Keep it")).to_be_focused()
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    opened(page, server.link, "#/compare/lenet-digits-1,slow-1")
    page.get_by_role("radio", name="steps").press("ArrowRight")
    expect(page.get_by_role("radio", name="samples")).to_be_checked()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing(page, server, view, scheme):
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci in page/")
    page.emulate_media(color_scheme=scheme)
    opened(page, server.link, view)
    page.evaluate(AXE.read_text())
    assert page.evaluate(VIOLATIONS) == []
    if (larger := page.get_by_role("button", name="enlarge")).count():
        larger.first.press("Enter")
        assert page.evaluate(VIOLATIONS) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_edges_stand_out_from_what_is_behind_them(scheme):
    """As WCAG 2.2 asks: 4.5 for text, 3 for what shows where a control is."""
    colours = _colours(scheme)
    text = product(("ink", "quiet", "link", "bad", "good", "busy"), ("paper", "card"))
    pairs = [
        *text,
        ("bad", "bad-paper"),
        ("ink", "bad-paper"),
        ("quiet", "bad-paper"),
        ("card", "link"),
        ("ink", "line"),
    ]
    faint = {pair: found for pair in pairs if (found := _contrast(*(colours[name] for name in pair))) < 4.5}
    edges = [("edge", "paper"), ("edge", "card"), ("link", "paper"), ("link", "card")]
    faint |= {pair: found for pair in edges if (found := _contrast(*(colours[name] for name in pair))) < 3}
    assert faint == {}


def _colours(scheme: str) -> dict[str, str]:
    """The stylesheet's, by name; those of the dark are named over the light ones."""
    style = (SOURCE / "src" / "page.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    return dict(re.findall(r"--([\w-]+): (#\w{6})", light + (dark if scheme == "dark" else "")))


def _contrast(one: str, other: str) -> float:
    low, high = sorted(map(_luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in shares]
    weights: Any = (0.2126, 0.7152, 0.0722)
    return float(sum(weight * one for weight, one in zip(weights, linear, strict=True)))
