"""A new user's way in the browser: a folder of images, a session, a run, a prediction, the model, and no terminal."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from safetensors.numpy import load_file

from page._asking import served
from page.conftest import AT_MOST_MS
from page.test_accessible import AXE, VIOLATIONS
from page.test_making import STARTER, photos

if TYPE_CHECKING:
    from playwright.sync_api import Page

DROP = """async ([selector, name, base64]) => {
    const transfer = new DataTransfer();
    const bytes = Uint8Array.from(atob(base64), (one) => one.charCodeAt(0));
    transfer.items.add(new File([bytes], name, { type: "image/png" }));
    const place = document.querySelector(selector);
    const given = { dataTransfer: transfer, bubbles: true, cancelable: true };
    for (const kind of ["dragover", "drop"]) place.dispatchEvent(new DragEvent(kind, given));
}"""


@pytest.fixture
def home(tmp_path) -> Path:
    home = tmp_path / "home"
    (home / "runs").mkdir(parents=True)
    return home


@pytest.fixture
def own(home):
    with served(home / "runs") as server:
        yield server


def looked_at(page: Page, name: str) -> None:
    """Fails for each fault that axe finds in the page now. VOLARY_PICTURES: a folder that gets a picture of it."""
    if folder := os.environ.get("VOLARY_PICTURES"):
        Path(folder, f"{name}.png").write_bytes(page.screenshot(full_page=True))
    if AXE.exists():
        page.evaluate(AXE.read_text(encoding="utf-8"))
        assert page.evaluate(VIOLATIONS) == []


# `own` before `page`: a tab that is open when its server ends asks for it again, and complains
def test_the_form_and_its_yaml_are_one_session_and_a_mistake_in_either_is_told_at_the_field(own, page, home):
    from playwright.sync_api import expect

    (home / "session.yaml").write_text(STARTER)
    page.goto(own.link + "#/new")
    text, rate = page.get_by_label("the same as YAML"), page.get_by_label("lr", exact=True)
    expect(text).to_have_value(STARTER)
    rate.fill("0.2")
    expect(text).to_have_value(STARTER.replace("0.01", "0.2"))
    text.fill(STARTER.replace("0.01", "0.3"))
    expect(rate).to_have_value("0.3")
    text.fill(STARTER.replace("0.01", "-1"))
    page.locator(".field", has=rate).get_by_role("alert").get_by_text("is -1; accepted: above 0").wait_for()
    expect(page.get_by_role("button", name="Start", exact=True)).to_be_disabled()
    text.fill("network: [")
    page.get_by_role("alert").get_by_text("is not valid YAML").wait_for()
    expect(rate).to_be_visible()
    text.fill(STARTER)
    expect(page.get_by_role("button", name="Submit to the queue")).to_be_enabled()
    page.get_by_label("steps", exact=True).fill("7")
    expect(text).to_have_value(STARTER.replace("3", "7"))
    looked_at(page, "form")


@pytest.mark.slow  # a run, and four processes that import torch
@pytest.mark.timeout(1200)
def test_from_a_folder_of_images_to_a_prediction_and_the_model_without_a_terminal(own, page, home, tmp_path):
    from playwright.sync_api import expect

    folder = photos(tmp_path / "beside" / "colours", each=20)
    page.goto(own.link)
    page.get_by_role("heading").get_by_role("link", name="New run").click()
    page.get_by_label("choose a folder").set_input_files(folder)
    page.get_by_text("Images: 40 samples to train on, 2 classes.").wait_for()
    expect(page.locator("img[alt^='red/11.png, 24']")).to_be_visible()
    assert len(list((home / "uploads" / "colours").rglob("*.png"))) == 40
    looked_at(page, "1-data")

    page.get_by_label("epochs", exact=True).fill("none")
    page.get_by_role("alert").get_by_text("accepted: a number").wait_for()
    page.get_by_label("epochs", exact=True).fill("4")
    expect(page.get_by_label("the same as YAML")).to_have_value(re.compile("epochs: 4"))
    looked_at(page, "2-session")
    page.get_by_role("button", name="Submit to the queue").click()

    page.get_by_role("heading", level=1, name="finished").wait_for(timeout=3 * AT_MOST_MS)
    assert "epochs: 4" in (home / "colours.yaml").read_text()
    card = page.locator("[data-card=predict]")
    card.scroll_into_view_if_needed()
    dropped = base64.b64encode((folder / "red" / "3.png").read_bytes()).decode()
    page.evaluate(DROP, ["[data-card=predict] .drop", "mine.png", dropped])
    card.get_by_text("mine.png: red").wait_for()
    page.get_by_role("button", name="Find the worst samples").click()
    expect(page.locator("[data-card=worst] li")).to_have_count(8)
    expect(page.locator("[data-card=confusion] canvas")).to_be_visible()
    looked_at(page, "3-run")

    with page.expect_download() as taken:
        page.get_by_role("button", name="Weights (.safetensors)").click()
    assert taken.value.suggested_filename == "cifar10_quick-colours-1.safetensors"
    assert load_file(taken.value.path())["conv1.weight"].shape == (32, 3, 5, 5)


@pytest.mark.slow  # a look
def test_a_table_is_looked_at_by_a_typed_path_and_its_target_chosen(own, page, home):
    from playwright.sync_api import expect

    rows = [f"{number},{number % 7},{'ab'[number % 2]}" for number in range(60)]
    (home / "table.csv").write_text("\n".join(["width,days,kind", *rows]) + "\n")
    page.goto(own.link + "#/new")
    page.get_by_label("Path on this machine").fill("tab")
    expect(page.locator("datalist option")).to_have_attribute("value", str(home / "table.csv"))
    page.get_by_label("Path on this machine").fill("table.csv")
    page.get_by_role("button", name="Look").click()
    page.get_by_text("A table: 60 samples to train on, 2 classes.").wait_for()
    page.get_by_label("Predict").select_option("days")
    page.get_by_text("A table: 60 samples to train on, 7 classes.").wait_for()
    expect(page.get_by_label("source.target", exact=True)).to_have_value("days")
    looked_at(page, "table")
