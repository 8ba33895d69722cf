"""Rules changed in a real Chromium, as text and as a form: checked, replayed, activated and rolled back."""

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from gateway.routing.plans import SIMULATE_TAG
from tests.browser.conftest import Running
from tests.browser.steps import button, go, patient, see, set_rules, suggested_after

pytestmark = [pytest.mark.browser, pytest.mark.integration]


HARD = (
    "Prove that the halting problem is undecidable by a diagonal argument, then implement in Rust a lock-free "
    "concurrent hash map with linearizable resizing, and derive its memory-ordering constraints step by step."
)


def test_a_rule_edited_wrongly_then_rightly_replayed_activated_and_rolled_back(
    browser: webdriver.Chrome, running: Running
) -> None:
    """The same request goes to another model after the activation, and to the first one after the roll-back."""
    first = answered_by(running)
    assert first[0] == "default"
    other = next(one for one in simulated_models(running) if one != first[1])
    go(browser, running, "/rules")
    before = running.ask("/admin/v1/rules")["active"]
    set_rules(browser, "choose: {from: any", "chose: {from: any")
    button(browser, "Check").click()
    see(browser, "is not a known field")
    line = browser.find_element(By.CSS_SELECTOR, ".be-error-line").text
    assert "chose:" in line
    set_rules(browser, "chose: {from: any", "choose: {from: any")
    set_rules(browser, "from: any", f"from: [{other}]")
    button(browser, "Compare").click()
    see(browser, "What changes")
    assert browser.find_elements(By.CSS_SELECTOR, ".be-sides .add")
    button(browser, "Replay last week").click()
    see(browser, "go elsewhere")
    button(browser, "Save and activate").click()
    see(browser, "is active now")
    after = running.ask("/admin/v1/rules")
    assert after["active"] != before
    patient(browser).until(lambda _: running.ask("/admin/v1/rules")["applied"] == after["active"])
    models = running.ask("/admin/v1/models")
    assert models["rules_version"].startswith(after["active"])
    assert answered_by(running) == ("default", other)
    set_rules(browser, f"from: [{other}]", "from: any")
    see(browser, "Valid.")
    button(browser, f"Roll back to {before}").click()
    see(browser, "not saved and would be lost")
    assert running.ask("/admin/v1/rules")["active"] == after["active"]
    button(browser, f"Discard it, roll back to {before}").click()
    see(browser, "is active now")
    patient(browser).until(lambda _: running.ask("/admin/v1/rules")["applied"] == before)
    assert answered_by(running) == first
    go(browser, running, "/audit")
    see(browser, "is intact")
    table = browser.find_element(By.CSS_SELECTOR, "tbody").text
    assert "demo-owner" in table
    assert "rules.activate" in table


def test_who_was_overtaken_keeps_the_edit_and_sees_what_it_would_replace(
    browser: webdriver.Chrome, running: Running
) -> None:
    go(browser, running, "/rules")
    before = running.ask("/admin/v1/rules")["active"]
    text = running.ask(f"/admin/v1/rules/{before}")["text"]
    set_rules(browser, "at_most: 0.4", "at_most: 0.25")
    theirs = running.put("/admin/v1/rules", text=f"{text}# theirs\n", expected_active=before, activate=True)["version"]
    button(browser, "Save and activate").click()
    see(browser, f"Version {theirs} by demo-owner became active while you edited")
    see(browser, f"Version {before} (not active), by")
    button(browser, f"Roll back to {before}")
    assert "theirs" in " ".join(one.text for one in browser.find_elements(By.CSS_SELECTOR, ".be-sides .del"))
    assert "at_most: 0.25" in " ".join(one.text for one in browser.find_elements(By.CSS_SELECTOR, ".be-sides .add"))
    button(browser, "Save").click()
    see(browser, "is saved, but not active")
    assert running.ask("/admin/v1/rules")["active"] == theirs
    running.put("/admin/v1/rules", text=text, expected_active=theirs, activate=True)
    patient(browser).until(lambda _: running.ask("/admin/v1/rules")["applied"] == before)


def simulated_models(running: Running) -> list[str]:
    return [one["name"] for one in running.ask("/admin/v1/models")["models"] if one["is_simulated"]]


def answered_by(running: Running) -> tuple[str, str]:
    """The rule and the model of a hard question, always the same one."""
    headers = {"authorization": f"Bearer {running.month.app_key}", "x-breakeven-tags": SIMULATE_TAG}
    body = {"model": "auto", "max_tokens": 4, "messages": [{"role": "user", "content": HARD}]}
    answer = httpx.post(
        f"{running.gateway}/v1/chat/completions", json=body, headers=headers, timeout=60, trust_env=False
    )
    answer.raise_for_status()
    return answer.headers["x-breakeven-rule"], answer.headers["x-breakeven-model"]


def test_the_editor_suggests_what_the_schema_allows(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/rules")
    assert {"from", "by", "min_quality"} <= set(suggested_after(browser, "choose: {"))


def test_a_mistake_is_shown_at_its_line_without_being_asked(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/rules")
    set_rules(browser, "by: expected_cost", "by: cheapest")
    see(browser, ", rule 3: choose.by: ")
    assert "cheapest" in browser.find_element(By.CSS_SELECTOR, ".be-error-line").text
    set_rules(browser, "by: cheapest", "by: expected_cost")
    see(browser, "Valid.")
    set_rules(browser, "by: expected_cost", "#" * 1_000_000)
    see(browser, "Nothing was pasted")


def test_the_form_edits_the_text(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/rules")
    button(browser, "Form").click()
    see(browser, "tags private → local")
    rules = browser.find_elements(By.CSS_SELECTOR, ".be-rule")
    difficulty = rules[1].find_element(By.CSS_SELECTOR, "input[aria-label='Difficulty at most']")
    difficulty.send_keys(Keys.CONTROL + "a")
    difficulty.send_keys("0.3" + Keys.TAB)
    see(browser, "difficulty at most 0.3 → any")
    up = rules[1].find_element(By.CSS_SELECTOR, "button[aria-label='Move up']")
    assert min(up.size["width"], up.size["height"]) >= 24, "large enough to be hit (WCAG 2.2, 2.5.8)"
    up.click()
    wait = patient(browser)
    wait.until(
        lambda one: one.find_element(By.CSS_SELECTOR, ".be-rule input").get_attribute("value") == "easy-goes-cheap"
    )
    rules = browser.find_elements(By.CSS_SELECTOR, ".be-rule")
    difficulty = rules[0].find_element(By.CSS_SELECTOR, "input[aria-label='Difficulty at most']")
    difficulty.send_keys(Keys.CONTROL + "a")
    difficulty.send_keys("3")
    patient(browser).until(lambda one: "rule 1: when" in one.find_element(By.CSS_SELECTOR, ".be-rule.be-wrong").text)
    difficulty.send_keys(Keys.CONTROL + "a")
    difficulty.send_keys("0.3")
    patient(browser).until(lambda one: not one.find_elements(By.CSS_SELECTOR, ".be-rule.be-wrong"))
    button(browser, "Compare").click()
    see(browser, "What changes")
    added = " ".join(cell.text for cell in browser.find_elements(By.CSS_SELECTOR, ".be-sides .add"))
    assert "difficulty: {at_most: 0.3}" in added
    assert "# Easy prompts go where they cost least" in added, "a rule moves with its comment"
    button(browser, "Check").click()
    see(browser, "Valid.")


def test_the_text_of_the_rules_is_left_by_the_keyboard(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/rules")
    see(browser, "Esc, then Tab, leaves the text")
    browser.execute_script("document.querySelector('.cm-content').focus()")
    ActionChains(browser).send_keys(Keys.ESCAPE, Keys.TAB).perform()
    assert browser.switch_to.active_element.get_attribute("aria-label") == "Why this change?"


def test_the_editor_is_dark_where_the_page_is(browser: webdriver.Chrome, running: Running) -> None:
    """By the system's setting, and immediately when somebody presses the button; never on paper."""
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    try:
        go(browser, running, "/rules")
        patient(browser).until(lambda one: brightness(one) < 90)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", **dark})
        line, editor = (browser.find_element(By.CSS_SELECTOR, one) for one in (".cm-line", ".cm-editor"))
        assert line.value_of_css_property("color") == "rgba(0, 0, 0, 1)", "on paper, which is white"
        assert editor.value_of_css_property("overflow-y") == "visible", "a print has every line"
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", **dark})
        button(browser, "Light / dark").click()
        patient(browser).until(lambda one: brightness(one) > 200)
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def brightness(browser: webdriver.Chrome) -> int:
    """The red component, 0 to 255, of the editor's background."""
    ground = browser.find_element(By.CSS_SELECTOR, ".cm-editor").value_of_css_property("background-color")
    return int(ground.partition("(")[2].partition(",")[0])
