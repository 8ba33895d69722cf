"""What admins and finance change in a real Chromium: rules as text and as a form, budgets, keys, what-ifs."""

import json
from decimal import Decimal

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from dashboards import display
from gateway.routing.decide import SIMULATE_TAG
from tests.browser.conftest import Running
from tests.browser.steps import button, go, patient, see, set_rules, suggested_after, tile

pytestmark = [pytest.mark.browser, pytest.mark.integration]
HARD = (
    "Prove that the halting problem is undecidable by a diagonal argument, then implement in Rust a lock-free "
    "concurrent hash map with linearizable resizing, and derive its memory-ordering constraints step by step."
)


def test_a_rule_edited_wrongly_then_rightly_replayed_activated_and_rolled_back(
    browser: webdriver.Chrome, running: Running
) -> None:
    """One and the same request goes to another model from the activation on, and back after the roll back."""
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
    button(browser, f"Roll back to {before}").click()
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
    assert "theirs" in " ".join(one.text for one in browser.find_elements(By.CSS_SELECTOR, ".be-sides .del"))
    assert "at_most: 0.25" in " ".join(one.text for one in browser.find_elements(By.CSS_SELECTOR, ".be-sides .add"))
    button(browser, "Save").click()
    see(browser, "is saved, and not active")
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
    see(browser, "rules.2.choose.by")
    assert "cheapest" in browser.find_element(By.CSS_SELECTOR, ".be-error-line").text
    set_rules(browser, "by: cheapest", "by: expected_cost")
    see(browser, "Valid.")


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
    button(browser, "Compare").click()
    see(browser, "What changes")
    added = " ".join(cell.text for cell in browser.find_elements(By.CSS_SELECTOR, ".be-sides .add"))
    assert "difficulty: {at_most: 0.3}" in added
    assert "# Easy prompts go wherever they cost least" in added, "a rule moves with its comment"
    button(browser, "Check").click()
    see(browser, "Valid.")


def test_finance_sets_a_budget_and_sees_it_used(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/budgets")
    see(browser, "Chance of exceeding")
    button(browser, "Set budget").click()
    see(browser, "Dollars a month: is not an amount of dollars")
    button(browser, "Remove").click()
    see(browser, "Choose the budget to remove.")
    browser.find_element(By.CSS_SELECTOR, "input[aria-label='Name']").send_keys("search" + Keys.TAB)
    browser.find_element(By.CSS_SELECTOR, "input[aria-label='Dollars a month']").send_keys("$1,234.50" + Keys.TAB)
    browser.find_element(By.CLASS_NAME, "q-checkbox").click()
    button(browser, "Set budget").click()
    see(browser, "Team search")
    budgets = {one["name"]: one for one in running.ask("/admin/v1/budgets", running.month.viewer_key)["budgets"]}
    assert Decimal(budgets["search"]["month_usd"]) == Decimal("1234.5")
    assert {name for name, one in budgets.items() if one["stops"]} == {"search"}
    rows = browser.find_elements(By.CSS_SELECTOR, "tbody tr")
    row = next(row for row in rows if row.text.startswith("Team search"))
    _, amount, spent, *_, at_its_end = row.find_elements(By.TAG_NAME, "td")
    assert (amount.text, at_its_end.text) == ("$1,234.50", "a refusal")
    assert spent.get_attribute("title") == display.exact_dollars(budgets["search"]["spent_usd"])


def test_a_budget_is_removed_only_once_that_was_confirmed(browser: webdriver.Chrome, running: Running) -> None:
    def names() -> set[str]:
        return {one["name"] for one in running.ask("/admin/v1/budgets")["budgets"]}

    running.put("/admin/v1/budgets", scope="team", name="to be removed", month_usd="5", stops=True)
    go(browser, running, "/budgets")
    see(browser, "nothing: it has no key")
    browser.find_element(By.CSS_SELECTOR, "input[aria-label='Budget to remove']").send_keys("be rem")
    patient(browser).until(lambda one: _option(one, "Team to be removed")).click()
    button(browser, "Remove").click()
    see(browser, "Requests are no longer refused for it")
    assert "to be removed" in names(), "asked, not done"
    button(browser, "Remove it").click()
    patient(browser).until(lambda _: "to be removed" not in names())


def test_a_batch_is_cancelled_only_once_that_was_confirmed(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/batches")
    see(browser, "A first batch")
    batch = begin_batch(running, "cancel <me>")

    def status() -> str:
        return running.ask(f"/v1/batches/{batch}", running.month.app_key)["status"]

    patient(browser).until(lambda _: status() == "in_progress")
    go(browser, running, "/batches")
    row = browser.find_element(By.CSS_SELECTOR, "tbody tr").text
    assert all(said in row for said in (batch, "in progress", "0 of 1"))
    button(browser, "Cancel").click()
    see(browser, "Choose the batch to cancel.")
    browser.find_element(By.CSS_SELECTOR, "input[aria-label='Batch to cancel']").send_keys(batch)
    patient(browser).until(lambda one: one.find_element(By.CSS_SELECTOR, "[role=option]")).click()
    button(browser, "Cancel").click()
    see(browser, "its answers so far are kept")
    assert status() == "in_progress", "asked, not done"
    button(browser, "Cancel the batch").click()
    patient(browser).until(lambda _: status() == "cancelled")
    go(browser, running, "/batches")
    see(browser, "No batch is under way")
    assert "cancelled" in browser.find_element(By.CSS_SELECTOR, "tbody tr").text
    go(browser, running, "/audit")
    record = browser.find_element(By.CSS_SELECTOR, "tbody tr").text
    assert all(said in record for said in ("demo-owner", "batch.cancel", batch))


def test_batches_under_way_are_followed_without_a_reload(browser: webdriver.Chrome, running: Running) -> None:
    first, second = begin_batch(running, "follow"), begin_batch(running, "me too")
    go(browser, running, "/batches")
    rows = browser.find_elements(By.CSS_SELECTOR, "tbody tr")
    assert first in rows[1].text
    assert second in rows[0].text
    browser.execute_script("window.isSamePage = true")
    for batch in (first, second):
        cancel_batch(running, batch)
    see(browser, "No batch is under way")
    assert not button_is_shown(browser, "Cancel"), "there is none to choose"
    ended = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")[:2]]
    assert all(batch in row and "cancelled" in row for batch, row in zip((second, first), ended, strict=True))
    assert browser.execute_script("return window.isSamePage")


def test_a_batch_leads_to_its_requests_and_to_what_they_came_to(browser: webdriver.Chrome, running: Running) -> None:
    """Of this one nothing was asked: no model here could answer it."""
    batch = begin_batch(running, "what do you cost")
    cancel_batch(running, batch)
    go(browser, running, "/batches")
    browser.find_element(By.PARTIAL_LINK_TEXT, batch).click()
    see(browser, "None in this time has all of these properties.")
    assert f"batch_id={batch}" in browser.current_url
    assert browser.find_element(By.NAME, "batch_id").get_attribute("value") == batch


def cancel_batch(running: Running, batch: str) -> None:
    headers = {"authorization": f"Bearer {running.month.app_key}"}
    address = f"{running.gateway}/v1/batches/{batch}/cancel"
    httpx.post(address, headers=headers, timeout=120, trust_env=False).raise_for_status()


def button_is_shown(browser: webdriver.Chrome, label: str) -> bool:
    buttons = browser.find_elements(By.TAG_NAME, "button")
    return any(one.is_displayed() for one in buttons if one.text.strip() == label)


def begin_batch(running: Running, said: str) -> str:
    """Its name. There is no model here that could answer it."""
    body = {"model": "auto", "messages": [{"role": "user", "content": said}]}
    line = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": body}
    with httpx.Client(
        base_url=f"{running.gateway}/v1",
        headers={"authorization": f"Bearer {running.month.app_key}"},
        timeout=120,
        trust_env=False,
    ) as client:
        file = client.post("/files", files={"file": json.dumps(line).encode()}, data={"purpose": "batch"}).json()
        asked = {"input_file_id": file["id"], "endpoint": line["url"]}
        return client.post("/batches", json=asked).raise_for_status().json()["id"]


@pytest.mark.parametrize("path", ["/budgets", "/budgets?find=research"])
def test_another_amount_leaves_a_budget_that_stops_stopping(
    path: str, browser: webdriver.Chrome, running: Running
) -> None:
    """Also one that the page does not show; and Enter sets it."""
    running.put("/admin/v1/budgets", scope="team", name="strict", month_usd="5", stops=True)
    go(browser, running, path)
    browser.find_element(By.CSS_SELECTOR, "input[aria-label=Name]").send_keys("strict")
    browser.find_element(By.CSS_SELECTOR, "input[aria-label='Dollars a month']").send_keys("7" + Keys.ENTER)

    def strict() -> tuple[bool, bool]:
        found = next(one for one in running.ask("/admin/v1/budgets")["budgets"] if one["name"] == "strict")
        return float(found["month_usd"]) == 7, found["stops"]

    patient(browser).until(lambda _: strict()[0])
    assert strict() == (True, True)


def test_a_slider_computes_break_even_again(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/break-even")
    before = tile(browser, "With this plan").text
    handle = browser.find_element(By.CSS_SELECTOR, ".be-lever .q-slider__track-container")
    wait = patient(browser)
    wait.until(lambda _: handle.aria_role == "slider")
    assert handle.accessible_name == "GPU price"
    frame = browser.find_element(By.CSS_SELECTOR, ".be-lever .q-slider")
    assert frame.get_attribute("role") is None, "one slider, not one in another"
    before_now = handle.get_attribute("aria-valuenow")
    browser.execute_script("arguments[0].focus()", handle)
    ActionChains(browser).send_keys(Keys.ARROW_RIGHT * 12).perform()
    wait.until(lambda one: tile(one, "With this plan").text != before)
    wait.until(lambda one: "gpu_hour_usd=" in one.current_url)

    def is_the_reports(one: webdriver.Chrome) -> bool:
        """Of the price in the address: each press changes both, one after the other."""
        query = one.current_url.partition("?")[2]
        found = running.ask(f"/admin/v1/reports/break-even?{query}")["report"]
        return display.dollars(found["month"]["plan_usd"]) in tile(one, "With this plan").text

    wait.until(is_the_reports, "the tile shows another amount than the report")

    def said(one: webdriver.Chrome) -> str:
        return one.find_element(By.CSS_SELECTOR, ".be-lever-value").text

    assert said(browser).endswith("/ hour")
    wait.until(lambda one: handle.get_attribute("aria-valuetext") == said(one), "the exponent of a logarithmic slider")
    assert handle.get_attribute("aria-valuenow") not in (before_now, None)
    assert frame.get_attribute("aria-valuenow") is None


def test_the_focus_of_a_button_and_a_checkbox_is_seen(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/budgets")
    amount = browser.find_element(By.CSS_SELECTOR, "input[aria-label='Dollars a month']")
    browser.execute_script("arguments[0].focus()", amount)
    for role in ("checkbox", "button"):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        focused = browser.switch_to.active_element
        assert (focused.aria_role, focused.value_of_css_property("outline-style")) == (role, "solid")


def test_the_text_of_the_rules_is_left_by_the_keyboard(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/rules")
    see(browser, "Esc, then Tab, leaves the text")
    browser.execute_script("document.querySelector('.cm-content').focus()")
    ActionChains(browser).send_keys(Keys.ESCAPE, Keys.TAB).perform()
    assert browser.switch_to.active_element.get_attribute("aria-label") == "Why this change?"


def test_limits_of_a_key_are_changed_where_it_is_listed(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/keys")
    assert "$40.00 a month, 600 requests / min" in browser.find_element(By.TAG_NAME, "table").text


def test_a_key_is_made_once_and_works(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/keys")
    browser.find_element(By.CSS_SELECTOR, "input[aria-label=Name]").send_keys("from the browser" + Keys.TAB)
    button(browser, "Create").click()
    see(browser, "from the browser may start now")
    secret = browser.find_element(By.CLASS_NAME, "be-secret").text
    assert running.ask("/v1/models", secret)["data"]
    go(browser, running, "/keys")
    see(browser, "from the browser")
    assert secret not in browser.page_source
    browser.find_element(By.CSS_SELECTOR, "input[aria-label=Key]").click()
    patient(browser).until(lambda one: _option(one, "from the browser (app)")).click()
    button(browser, "Revoke").click()
    see(browser, "it cannot be used again")
    assert running.ask("/v1/models", secret)["data"], "asked, not done"
    button(browser, "Revoke for good").click()
    patient(browser).until(lambda _: _is_refused(running, secret))


def test_a_key_gets_another_team_tags_and_an_end_and_the_audit_log_says_so(
    browser: webdriver.Chrome, running: Running
) -> None:
    headers = {"authorization": f"Bearer {running.month.owner_key}"}
    made = {"name": "to be changed", "team": "red", "limits": {"budget_usd": "9"}}
    answer = httpx.post(f"{running.gateway}/admin/v1/keys", json=made, headers=headers, timeout=60, trust_env=False)
    key_id = answer.raise_for_status().json()["id"]
    go(browser, running, "/keys")
    browser.find_element(By.CSS_SELECTOR, "input[aria-label=Key]").click()
    patient(browser).until(lambda one: _option(one, "to be changed (app)")).click()
    patient(browser).until(lambda one: _editor(one, "Team").get_attribute("value") == "red")
    _editor(browser, "Team").send_keys(Keys.CONTROL + "a")
    _editor(browser, "Team").send_keys("blue" + Keys.TAB)
    _editor(browser, "Tags, separated by commas").send_keys("eu, batch" + Keys.TAB)
    _choose_day(_editor(browser, "Last day, UTC"), "2099-12-31")
    button(browser, "Save").click()
    see(browser, "until 31 Dec 2099")
    see(browser, "eu, batch")
    [key] = [one for one in running.ask("/admin/v1/keys")["keys"] if one["id"] == key_id]
    assert (key["team"], key["tags"], key["limits"]) == ("blue", ["eu", "batch"], {"budget_usd": "9"})
    go(browser, running, "/audit")
    see(browser, "team red → blue")


def test_a_limit_set_meanwhile_stays_when_another_is_changed(browser: webdriver.Chrome, running: Running) -> None:
    [key] = [one for one in running.ask("/admin/v1/keys")["keys"] if one["name"] == "support-bot"]
    path = f"/admin/v1/keys/{key['id']}/limits"
    try:
        go(browser, running, f"/keys?change={key['id']}")
        patient(browser).until(lambda one: _editor(one, "Budget, $").get_attribute("value") == "40")
        running.put(path, limits={**key["limits"], "budget_usd": "7"})
        _editor(browser, "Input tokens a minute").send_keys("90000" + Keys.TAB)
        _editor(browser, "Requests at once").send_keys("25" + Keys.TAB)
        button(browser, "Save").click()
        see(browser, "$7.00 a month, 600 requests / min, 90,000 tokens / min, 25 at once")
        go(browser, running, f"/keys?change={key['id']}")
        patient(browser).until(lambda one: _editor(one, "Requests at once").get_attribute("value") == "25")
    finally:
        running.put(path, limits=key["limits"])


def test_a_key_gets_a_new_secret_beside_the_old_one_and_the_old_one_is_ended(
    browser: webdriver.Chrome, running: Running
) -> None:
    headers = {"authorization": f"Bearer {running.month.owner_key}"}
    made = {"name": "to be rotated"}
    answer = httpx.post(f"{running.gateway}/admin/v1/keys", json=made, headers=headers, timeout=60, trust_env=False)
    old, key_id = answer.raise_for_status().json()["key"], answer.json()["id"]
    go(browser, running, "/keys")
    browser.find_element(By.CSS_SELECTOR, "input[aria-label=Key]").click()
    patient(browser).until(lambda one: _option(one, "to be rotated (app)")).click()
    button(browser, "New secret").click()
    see(browser, "The new secret of to be rotated works now")
    new = browser.find_element(By.CLASS_NAME, "be-secret").text
    see(browser, "The old secret works until")
    assert running.ask("/v1/models", new)["data"]
    assert running.ask("/v1/models", old)["data"]
    go(browser, running, f"/keys?change={key_id}")
    see(browser, "active, old secret works")
    assert new not in browser.page_source
    button(browser, "End the old secret now").click()
    see(browser, "Whoever uses it then is refused within a second")
    button(browser, "End it now").click()
    patient(browser).until(lambda _: _is_refused(running, old))
    assert running.ask("/v1/models", new)["data"]
    go(browser, running, "/audit")
    see(browser, "new secret; the old one works until")


def _editor(browser: webdriver.Chrome, label: str) -> WebElement:
    """The changed key's field, not the new key's above it."""
    return browser.find_elements(By.CSS_SELECTOR, f"input[aria-label='{label}']")[1]


def _choose_day(field: WebElement, day: str) -> None:
    """As the picker does it; which keys type a date depends on the browser's language."""
    script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))"
    field.parent.execute_script(script, field, day)


def _option(browser: webdriver.Chrome, text: str) -> WebElement:
    return next(one for one in browser.find_elements(By.CSS_SELECTOR, ".q-menu .q-item") if one.text == text)


def _is_refused(running: Running, secret: str) -> bool:
    headers = {"authorization": f"Bearer {secret}"}
    return httpx.get(f"{running.gateway}/v1/models", headers=headers, timeout=60, trust_env=False).status_code == 401


def test_the_editor_is_dark_where_the_page_is(browser: webdriver.Chrome, running: Running) -> None:
    """By the system's wish, and at once when somebody presses the button."""
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    try:
        go(browser, running, "/rules")
        patient(browser).until(lambda one: brightness(one) < 90)
        button(browser, "Light / dark").click()
        patient(browser).until(lambda one: brightness(one) > 200)
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def brightness(browser: webdriver.Chrome) -> int:
    """Of the editor's ground: its red, from 0 to 255."""
    ground = browser.find_element(By.CSS_SELECTOR, ".cm-editor").value_of_css_property("background-color")
    return int(ground.partition("(")[2].partition(",")[0])
