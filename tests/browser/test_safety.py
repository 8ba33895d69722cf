"""Hostile text stays text, and pages are for who is signed in and may read them, in a real Chromium."""

from urllib.parse import urlencode, urlsplit

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from dashboards.security import COOKIE
from gateway.routing.plans import SIMULATE_TAG
from tests.browser import axe
from tests.browser.conftest import Running, drain
from tests.browser.pictures import sign_in
from tests.browser.steps import button, go, see

pytestmark = [pytest.mark.browser, pytest.mark.integration]

SHORT_XSS = "<img src=x onerror=\"document.title='owned'\">"
XSS = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def test_a_hostile_prompt_and_key_name_are_shown_as_text(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/try")
    area = browser.find_element(By.TAG_NAME, "textarea")
    button(browser, "Explain the decision").click()
    see(browser, "Write a prompt first.")
    assert area.get_attribute("aria-invalid") == "true"
    browser.execute_cdp_cmd("Input.insertText", {"text": "word " * 30_000})  # as if pasted, into what has the focus
    button(browser, "Explain the decision").click()
    see(browser, "takes no more than 100,000 characters")
    area.send_keys(Keys.CONTROL + "a")
    area.send_keys(XSS)
    browser.find_element(By.CSS_SELECTOR, "input[aria-label^=Tags]").send_keys(SIMULATE_TAG + Keys.TAB)
    button(browser, "Explain the decision").click()
    see(browser, "The decision")
    assert XSS in browser.find_element(By.CSS_SELECTOR, ".be-code").text
    assert not browser.find_elements(By.CSS_SELECTOR, ".be-main img")
    go(browser, running, "/requests?" + urlencode({"team": SHORT_XSS}))
    see(browser, "No requests")
    assert not browser.find_elements(By.CSS_SELECTOR, ".be-main img")
    go(browser, running, "/explorer?" + urlencode({"team": SHORT_XSS, "by": "model"}))
    assert "owned" not in browser.title


def test_a_viewer_sees_no_requests_and_changes_nothing(chromium: webdriver.Chrome, running: Running) -> None:
    chromium.delete_all_cookies()
    sign_in(chromium, running.ui, running.month.viewer_key)
    pages = [one.text for one in chromium.find_elements(By.CSS_SELECTOR, "a.be-nav")]
    assert "Overview" in pages
    assert not {"Requests", "Keys", "Audit log"} & set(pages)
    go(chromium, running, "/audit")
    see(chromium, "Not for this role")
    go(chromium, running, "/rules")
    labels = [one.text for one in chromium.find_elements(By.TAG_NAME, "button")]
    assert "Check" in labels
    assert "Save and activate" not in labels


def test_without_a_session_there_is_only_the_form(chromium: webdriver.Chrome, running: Running) -> None:
    chromium.delete_all_cookies()
    chromium.get(f"{running.ui}/ui/requests")
    assert urlsplit(chromium.current_url).path == "/ui/sign-in"
    assert not axe.is_here() or not axe.barriers(chromium, has_dark=False)
    chromium.find_element(By.ID, "key").send_keys("bk-wrong")
    chromium.find_element(By.CSS_SELECTOR, "button").click()
    see(chromium, "This key is not known here")
    assert chromium.find_element(By.ID, "key").get_attribute("aria-describedby") == "problem"
    chromium.get(f"{running.ui}/ui/sign-in")
    chromium.find_element(By.ID, "key").send_keys(running.month.app_key)
    chromium.find_element(By.CSS_SELECTOR, "button").click()
    see(chromium, "may call models but not read reports")
    drain(chromium)


def test_signing_out_ends_the_session_on_the_server(browser: webdriver.Chrome, running: Running) -> None:
    sign_in(browser, running.ui, running.month.owner_key)
    cookie = browser.get_cookie(COOKIE)
    assert cookie is not None
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Lax"
    button(browser, "Sign out").click()
    see(browser, "API key")
    again = httpx.get(f"{running.ui}/ui/", cookies={COOKIE: cookie["value"]}, trust_env=False, timeout=120)
    assert again.status_code == 303
