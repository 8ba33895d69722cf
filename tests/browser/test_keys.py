"""Keys made, changed, rotated and revoked in a real Chromium."""

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.browser import axe
from tests.browser.conftest import Running
from tests.browser.steps import button, go, option, patient, see

pytestmark = [pytest.mark.browser, pytest.mark.integration]


def test_limits_of_a_key_are_changed_where_it_is_listed(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/keys")
    assert "$40.00 a month, 600 requests / min" in browser.find_element(By.TAG_NAME, "table").text


def test_a_key_is_made_once_and_works(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/keys")
    browser.find_element(By.CSS_SELECTOR, "input[aria-label=Name]").send_keys("from the browser" + Keys.TAB)
    button(browser, "Create").click()
    see(browser, "from the browser can be used now")
    secret = browser.find_element(By.CLASS_NAME, "be-secret").text
    assert running.ask("/v1/models", secret)["data"]
    patient(browser).until(lambda one: one.find_elements(By.LINK_TEXT, "from the browser"))  # in the list at once
    button(browser, "Create").click()  # once more: does not make another of this name
    see(browser, "Name: must not be empty")
    go(browser, running, "/keys")
    see(browser, "from the browser")
    assert secret not in browser.page_source
    browser.find_element(By.CSS_SELECTOR, "input[aria-label=Key]").click()
    offered = patient(browser).until(lambda one: option(one, "from the browser (app)"))
    # A screen reader finds a list's options only if no box between them and the list is focusable.
    patient(browser).until(lambda one: not one.find_elements(By.CSS_SELECTOR, "[role=listbox] > [tabindex]"))
    assert not axe.is_here() or not axe.barriers(browser, has_dark=False)
    browser.execute_script("arguments[0].click()", offered)  # axe scrolls the list
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
    patient(browser).until(lambda one: option(one, "to be changed (app)")).click()
    patient(browser).until(lambda one: _editor(one, "Team").get_attribute("value") == "red")
    _editor(browser, "Team").send_keys(Keys.CONTROL + "a")
    _editor(browser, "Team").send_keys("blue" + Keys.TAB)
    _editor(browser, "Tags, comma-separated").send_keys("eu, batch" + Keys.TAB)
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
    patient(browser).until(lambda one: option(one, "to be rotated (app)")).click()
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
    see(browser, "Whoever still uses it is refused within a second")
    button(browser, "End it now").click()
    patient(browser).until(lambda _: _is_refused(running, old))
    assert running.ask("/v1/models", new)["data"]
    # The page leads back to the list, and would do so over the next page.
    patient(browser).until(lambda one: "old secret works" not in one.find_element(By.TAG_NAME, "body").text)
    go(browser, running, "/audit")
    see(browser, "new secret; the old one works until")


def _editor(browser: webdriver.Chrome, label: str) -> WebElement:
    """A field of the form to change a key, not of the form for a new key above it."""
    return browser.find_elements(By.CSS_SELECTOR, f"input[aria-label='{label}']")[1]


def _choose_day(field: WebElement, day: str) -> None:
    """Set the date as the picker does: which keys type one depends on the browser's language."""
    script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))"
    field.parent.execute_script(script, field, day)


def _is_refused(running: Running, secret: str) -> bool:
    headers = {"authorization": f"Bearer {secret}"}
    return httpx.get(f"{running.gateway}/v1/models", headers=headers, timeout=60, trust_env=False).status_code == 401
