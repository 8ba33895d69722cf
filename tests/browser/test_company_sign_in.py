"""Signing in through a company's identity provider in a real Chromium: who gets in and with which role, who does not,
and signing out."""

from collections.abc import Iterator
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from dashboards.security import COOKIE
from tests.browser.conftest import Running, child, console_errors, drain, ui_command
from tests.browser.identity_server import environment, serve_identities
from tests.browser.pictures import wait_for_page
from tests.browser.steps import button, end_session, patient, see
from tests.ports import free_port

pytestmark = [pytest.mark.browser, pytest.mark.integration]


@pytest.fixture(scope="module")
def company(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A web UI beside an identity provider."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    log = tmp_path_factory.mktemp("company") / "ui.log"
    with serve_identities() as identities:
        given = environment(identities, url, running.month.owner_key)
        with child(ui_command(running.gateway, port), f"{url}/ui/healthz", log, given):
            yield url


def test_a_person_comes_in_with_their_role_and_leaves_and_others_do_not(
    chromium: webdriver.Chrome, running: Running, company: str
) -> None:
    chromium.delete_all_cookies()
    drain(chromium)
    _finance_comes_in(chromium, company)
    key = _key_of(running, "ann@corp.example")
    assert (key["role"], key["revoked_at_us"]) == ("finance", None)
    button(chromium, "Sign out").click()
    see(chromium, "Or with a key")
    assert _key_of(running, "ann@corp.example")["revoked_at_us"], "the key outlived the session"
    _choose(chromium, company, "Bob")
    see(chromium, "bob@corp.example is known to the identity provider, but has no role here")
    assert chromium.get_cookie(COOKIE) is None
    _choose(chromium, company, "Cancel")
    see(chromium, "The identity provider refused: access_denied")
    assert chromium.get_cookie(COOKIE) is None
    refused = [error for error in console_errors(chromium) if "/ui/oidc/callback" not in error]
    assert not refused, "the console has errors beside the two refusals"
    drain(chromium)


def test_what_was_typed_is_there_again_after_the_provider_was_asked_once_more(
    chromium: webdriver.Chrome, running: Running, company: str
) -> None:
    """The way back leads through another origin to the page, with its query."""
    chromium.delete_all_cookies()
    _choose(chromium, company, "Ann")
    see(chromium, "ann@corp.example · finance")
    chromium.get(f"{company}/ui/budgets?find=a")
    wait_for_page(chromium)
    for label, text in (("Name", "atlas"), ("Dollars a month", "1,250")):
        chromium.find_element(By.CSS_SELECTOR, f"input[aria-label='{label}']").send_keys(text)
    end_session(chromium, company)
    button(chromium, "Set budget").click()
    patient(chromium).until(lambda one: one.find_element(By.PARTIAL_LINK_TEXT, "Sign in with")).click()
    patient(chromium).until(lambda one: one.find_element(By.LINK_TEXT, "Ann")).click()
    see(chromium, "What you had typed has been restored")
    assert chromium.current_url == f"{company}/ui/budgets?find=a"
    shown = [
        chromium.find_element(By.CSS_SELECTOR, f"input[aria-label='{label}']").get_attribute("value")
        for label in ("Name", "Dollars a month")
    ]
    assert shown == ["atlas", "1,250"]
    assert "atlas" not in {one["name"] for one in running.ask("/admin/v1/budgets")["budgets"]}
    chromium.delete_all_cookies()
    chromium.get("about:blank")
    drain(chromium)


def _finance_comes_in(browser: webdriver.Chrome, url: str) -> None:
    _choose(browser, url, "Ann")
    see(browser, "ann@corp.example · finance")
    wait_for_page(browser)
    pages = {one.text for one in browser.find_elements(By.CSS_SELECTOR, "a.be-nav")}
    assert {"Overview", "Requests", "Audit log"} <= pages
    browser.get(f"{url}/ui/rules")
    wait_for_page(browser)
    labels = {one.text for one in browser.find_elements(By.TAG_NAME, "button")}
    assert "Check" in labels
    assert "Save and activate" not in labels, "finance reads rules and does not write them"


def _choose(browser: webdriver.Chrome, url: str, who: str) -> None:
    """From the sign-in page to the provider's, where somebody says who they are."""
    browser.get(f"{url}/ui/sign-in")
    browser.find_element(By.PARTIAL_LINK_TEXT, "Sign in with").click()
    patient(browser).until(lambda one: one.find_element(By.LINK_TEXT, who)).click()


def _key_of(running: Running, name: str) -> dict[str, Any]:
    [key] = [one for one in running.ask("/admin/v1/keys")["keys"] if one["name"] == name]
    return key
