"""Pages that lost their session or their gateway, or wait for it: they come back by themselves with what was typed."""

import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from dashboards.sign_in.destination import SIGN_IN, sign_in_address
from tests.browser.conftest import Running, child, console_errors, drain, ui_command
from tests.browser.pictures import sign_in, wait_for_page
from tests.browser.slow_gateway import slow_gateway
from tests.browser.steps import button, end_session, go, patient, see, set_rules
from tests.ports import free_port

pytestmark = [pytest.mark.browser, pytest.mark.integration]
WANTED = "/ui/rules?by=link"


def test_an_edit_outlives_the_session(chromium: webdriver.Chrome, running: Running, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = ui_command(running.gateway, port)  # without --state: the next process knows no session
    chromium.delete_all_cookies()
    with child(command, f"{url}/ui/healthz", tmp_path / "ui.log", {}):
        chromium.get(f"{url}{WANTED}")
        sign_in_here(chromium, url, running)
        set_rules(chromium, "min_quality", "# typed and not saved\n      min_quality")
    with child(command, f"{url}/ui/healthz", tmp_path / "ui.log", {}):
        sign_in_here(chromium, url, running)
        patient(chromium).until(lambda _: "# typed and not saved" in edited(chromium), "the edit is gone")
        chromium.execute_script("window.onbeforeunload = null")
    chromium.get("about:blank")
    drain(chromium)


def test_a_form_outlives_its_page_and_the_session_and_is_sent_only_by_who_presses_again(
    browser: webdriver.Chrome, running: Running
) -> None:
    go(browser, running, "/keys")
    field(browser, "Name").send_keys("typed before")
    field(browser, "Budget, $").send_keys("12.50")
    field(browser, "Requests a minute").send_keys("77")
    field(browser, "Requests at once").send_keys("8")
    choose(browser, "Role", "lead: reads")
    go(browser, running, "/keys")  # as a search of the keys, or a way over another page, opens it anew
    see(browser, "What you had typed has been restored")
    end_session(browser, running.ui)
    button(browser, "Create").click()
    sign_in_again(browser, running.ui, "/ui/keys", running)
    see(browser, "What you had typed has been restored")
    shown = [field(browser, name).get_attribute("value") for name in ("Name", "Budget, $", "Requests a minute")]
    assert shown == ["typed before", "12.50", "77"]
    assert not running.ask("/admin/v1/keys?find=typed+before")["keys"], "sent without anybody pressing"
    field(browser, "Team").send_keys("search" + Keys.TAB)
    button(browser, "Create").click()
    see(browser, "typed before can be used now")
    [key] = running.ask("/admin/v1/keys?find=typed+before")["keys"]
    assert (key["role"], key["limits"]["requests_per_minute"], key["limits"]["max_parallel_requests"]) == (
        "lead",
        77,
        8,
    )
    end_session(browser, running.ui)
    sign_in_again(browser, running.ui, "/ui/keys", running)
    see(browser, "typed before")
    assert field(browser, "Name").get_attribute("value") == "", "what was sent is offered to be sent again"
    drain(browser)


def test_a_form_whose_key_was_revoked_leads_to_the_sign_in_and_back(
    chromium: webdriver.Chrome, running: Running
) -> None:
    headers = {"authorization": f"Bearer {running.month.owner_key}"}
    with httpx.Client(base_url=running.gateway, headers=headers, timeout=120, trust_env=False) as owner:
        made = owner.post("/admin/v1/keys", json={"name": "an owner for a while", "role": "owner"}).json()
        chromium.delete_all_cookies()
        sign_in(chromium, running.ui, made["key"])
        go(chromium, running, "/keys")
        field(chromium, "Name").send_keys("typed meanwhile")
        owner.post(f"/admin/v1/keys/{made['id']}/revoke").raise_for_status()
    button(chromium, "Create").click()
    see(chromium, "'an owner for a while' was revoked")
    chromium.find_element(By.LINK_TEXT, "Sign in with another key").click()
    sign_in_again(chromium, running.ui, "/ui/keys", running)
    patient(chromium).until(lambda one: field(one, "Name").get_attribute("value") == "typed meanwhile")
    assert not running.ask("/admin/v1/keys?find=typed+meanwhile")["keys"]
    drain(chromium)


def test_an_edit_of_a_key_comes_back_over_what_others_changed(browser: webdriver.Chrome, running: Running) -> None:
    [key] = running.ask("/admin/v1/keys?find=support-bot")["keys"]
    go(browser, running, "/keys")
    choose(browser, "Key", "support-bot (app)")
    patient(browser).until(lambda one: field(one, "Budget, $", of=1).get_attribute("value") == "40")
    field(browser, "Team", of=1).send_keys("-emea")
    path = f"/admin/v1/keys/{key['id']}/limits"
    running.put(path, limits={**key["limits"], "budget_usd": "41"})
    try:
        end_session(browser, running.ui)
        sign_in_again(browser, running.ui, "/ui/keys", running)
        see(browser, "What you had typed has been restored")
        shown = [field(browser, name, of=1).get_attribute("value") for name in ("Name", "Team", "Budget, $")]
        assert shown == ["support-bot", f"{key['team']}-emea", "41"]
    finally:
        running.put(path, limits=key["limits"])
        drain(browser)


def test_a_budget_that_was_typed_outlives_the_session(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/budgets")
    choose(browser, "Budget of", "A project")
    field(browser, "Name").send_keys("atlas")
    field(browser, "Dollars a month").send_keys("1,250")
    browser.find_element(By.CSS_SELECTOR, "[role=checkbox]").click()
    kept = browser.find_element(By.CSS_SELECTOR, "[data-form=budget]")
    patient(browser).until(lambda _: '"stops": true' in (kept.get_attribute("data-chosen") or ""), "never heard of it")
    end_session(browser, running.ui)
    sign_in_again(browser, running.ui, "/ui/budgets", running)
    see(browser, "What you had typed has been restored")
    assert [field(browser, name).get_attribute("value") for name in ("Name", "Dollars a month")] == ["atlas", "1,250"]
    assert field(browser, "Budget of").get_attribute("value") == "A project"
    assert browser.find_element(By.CSS_SELECTOR, "[role=checkbox]").get_attribute("aria-checked") == "true"
    assert "atlas" not in {one["name"] for one in running.ask("/admin/v1/budgets")["budgets"]}
    drain(browser)


def test_a_prompt_outlives_the_session_and_another_page_and_not_who_typed_it(
    browser: webdriver.Chrome, running: Running
) -> None:
    go(browser, running, "/try")
    long = "Sum up the contract. " * 150
    prompt(browser).click()
    browser.execute_cdp_cmd("Input.insertText", {"text": long})  # as if pasted
    field(browser, "Tags, comma-separated").send_keys("legal")
    go(browser, running, "/models")
    go(browser, running, "/try")
    see(browser, "What you had typed has been restored")
    assert [one.get_attribute("value") for one in (prompt(browser), field(browser, "Tags, comma-separated"))] == [
        long,
        "legal",
    ]
    end_session(browser, running.ui)
    button(browser, "Explain the decision").click()
    sign_in_again(browser, running.ui, "/ui/try", running)
    see(browser, "What you had typed has been restored")
    assert prompt(browser).get_attribute("value") == long
    button(browser, "Sign out").click()
    patient(browser).until(lambda one: one.current_url.endswith(SIGN_IN), "never signed out")
    browser.get(f"{running.ui}/ui/try")
    sign_in_again(browser, running.ui, "/ui/try", running)
    assert prompt(browser).get_attribute("value") == "", "what one person typed is shown to the next"
    drain(browser)


def prompt(browser: webdriver.Chrome) -> WebElement:
    return browser.find_element(By.CSS_SELECTOR, "textarea[aria-label=Prompt]")


class EmptyAnswers(BaseHTTPRequestHandler):
    """A gateway that is back, but whose answers are empty."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the standard library's
        pass


def test_a_page_comes_once_its_gateway_is_back(chromium: webdriver.Chrome, running: Running, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{(port := free_port())}"
    chromium.delete_all_cookies()
    with ExitStack() as until_gone:
        gateway, _ = until_gone.enter_context(slow_gateway(running.gateway))
        with child(ui_command(gateway, port), f"{url}/ui/healthz", tmp_path / "ui.log", {}):
            sign_in(chromium, url, running.month.owner_key)
            until_gone.close()
            chromium.get(f"{url}/ui/budgets")
            see(chromium, "The gateway is not answering")
            with ThreadingHTTPServer(("127.0.0.1", urlsplit(gateway).port or 0), EmptyAnswers) as back:
                threading.Thread(target=back.serve_forever, daemon=True).start()
                see(chromium, "This page could not be built")
                back.shutdown()
    chromium.get("about:blank")
    drain(chromium)


def test_a_page_whose_gateway_is_slow_shows_its_frame_and_then_the_rest(
    chromium: webdriver.Chrome, running: Running, tmp_path: Path
) -> None:
    """Also what needs scripts of its own: charts, the rules editor, forms."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    chromium.delete_all_cookies()
    drain(chromium)
    with (
        slow_gateway(running.gateway) as (gateway, goes_on),
        child(ui_command(gateway, port), f"{url}/ui/healthz", tmp_path / "ui.log", {}),
    ):
        sign_in(chromium, url, running.month.owner_key)
        for page, whole in (
            ("/explorer?by=team", ".be-chart canvas"),
            ("/rules", "[data-completes=yes]"),
            ("/keys?change=none", "input[aria-label='Tier quotas']"),
        ):
            goes_on.clear()
            chromium.get(f"{url}/ui{page}")
            assert chromium.find_elements(By.CLASS_NAME, "be-building"), f"{page} was shown whole, or not at all"
            assert chromium.find_element(By.LINK_TEXT, "Overview").is_displayed()
            goes_on.set()
            wait_for_page(chromium)
            patient(chromium).until(lambda one, whole=whole: one.find_elements(By.CSS_SELECTOR, whole))
            assert not chromium.find_elements(By.CLASS_NAME, "be-building")
        _make_a_key_impatiently(chromium, running, goes_on)
        chromium.get("about:blank")
        assert not console_errors(chromium)


def _make_a_key_impatiently(browser: webdriver.Chrome, running: Running, goes_on: threading.Event) -> None:
    """Press twice, as somebody does who sees nothing happen: this used to create two keys."""
    browser.find_element(By.CSS_SELECTOR, "input[aria-label='Name']").send_keys("made once" + Keys.TAB)
    create = button(browser, "Create")
    goes_on.clear()
    browser.execute_script("arguments[0].click(); arguments[0].click()", create)
    patient(browser).until(lambda _: not create.is_enabled(), "nothing shows that it is under way")
    goes_on.set()
    patient(browser).until(lambda one: one.find_element(By.CLASS_NAME, "be-secret"))
    patient(browser).until(lambda _: create.is_enabled(), "it stays disabled")
    assert len(running.ask("/admin/v1/keys?find=made+once")["keys"]) == 1


def field(browser: webdriver.Chrome, label: str, *, of: int = 0) -> WebElement:
    """A field of the first form on the page, or of a later one."""
    return browser.find_elements(By.CSS_SELECTOR, f"input[aria-label='{label}']")[of]


def choose(browser: webdriver.Chrome, label: str, option: str) -> None:
    """Wait until the server has received it."""
    field(browser, label).click()
    find = f"//*[@role='option'][contains(., '{option}')]"
    patient(browser).until(lambda one: one.find_element(By.XPATH, find)).click()
    patient(browser).until(lambda one: option in (field(one, label).get_attribute("value") or ""))


def sign_in_here(browser: webdriver.Chrome, url: str, running: Running) -> None:
    sign_in_again(browser, url, WANTED, running)
    patient(browser).until(lambda one: one.find_elements(By.CSS_SELECTOR, "[data-completes=yes]"), "no editor")


def sign_in_again(browser: webdriver.Chrome, url: str, wanted: str, running: Running) -> None:
    """Wait for the sign-in to appear by itself, sign in, and wait for the page that was wanted."""
    patient(browser).until(lambda one: one.current_url == f"{url}{sign_in_address(wanted)}", "never asked to sign in")
    patient(browser).until(lambda one: one.find_element(By.ID, "key")).send_keys(running.month.owner_key)
    browser.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
    patient(browser).until(lambda one: one.current_url == f"{url}{wanted}", "signed in, and somewhere else")
    wait_for_page(browser)


def edited(browser: webdriver.Chrome) -> str:
    """The whole text of the editor, also what is scrolled out of sight."""
    return str(
        browser.execute_script(
            """const content = document.querySelector('.cm-content');
            return (content.cmTile?.view ?? content.cmView?.view).state.doc.toString();"""
        )
    )
