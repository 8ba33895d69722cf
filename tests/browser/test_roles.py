"""The running gateway's own OpenAPI document, asked with real keys: nothing under /admin is open by accident."""

from urllib.parse import urlsplit

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from gateway.access.keys import Role
from gateway.access.roles import may
from tests.browser.conftest import Running, drain
from tests.browser.pictures import sign_in
from tests.browser.steps import go, patient, see

pytestmark = [pytest.mark.browser, pytest.mark.integration]
DECLARATION = "x-breakeven-permission"
OTHER_KEYS = ("support-bot", "search-rewrite", "contract-reader", "nightly-cron")


def test_every_operation_refuses_whom_its_declaration_refuses(running: Running) -> None:
    paths = running.ask("/openapi.json")["paths"]
    declared = {
        (method, path): operation.get(DECLARATION)
        for path, item in paths.items()
        if path.startswith("/admin/")
        for method, operation in item.items()
    }
    assert all(declared.values()), "an operation declares no permission"
    assert len(declared) > 30
    keys: tuple[tuple[Role, str], ...] = (("app", running.month.app_key), ("viewer", running.month.viewer_key))
    wrong: list[str] = []
    with httpx.Client(base_url=running.gateway, timeout=60, trust_env=False) as client:
        for (method, path), permission in declared.items():
            address = path.replace("{", "").replace("}", "")
            if client.request(method, address).status_code != 401:
                wrong.append(f"nobody {method} {path}")
            for role, key in keys:
                if may(role, permission):
                    continue  # other tests check the answers, with the same routers and no database
                answer = client.request(method, address, headers={"authorization": f"Bearer {key}"})
                if answer.status_code != 403:
                    wrong.append(f"{role} {method} {path}: {answer.status_code}")
    assert not wrong


def test_a_lead_walks_through_the_books_of_its_team(chromium: webdriver.Chrome, running: Running) -> None:
    made = httpx.post(
        f"{running.gateway}/admin/v1/keys",
        json={"name": "the lead", "role": "lead", "team": "research"},
        headers={"authorization": f"Bearer {running.month.owner_key}"},
        timeout=120,
        trust_env=False,
    ).json()
    chromium.delete_all_cookies()
    drain(chromium)
    sign_in(chromium, running.ui, made["key"])
    see(chromium, "Every group")
    assert urlsplit(chromium.current_url).path == "/ui/explorer", "what it may not see it is not led to"
    pages = [one.text for one in chromium.find_elements(By.CSS_SELECTOR, "a.be-nav")]
    assert pages == ["Explorer", "Budgets", "Requests", "Batches", "Models and prices", "Keys"]
    go(chromium, running, "/explorer?by=team")
    groups = [one.text for one in chromium.find_elements(By.CSS_SELECTOR, "tbody tr td:first-child")]
    assert groups == ["research", "Total"]
    assert [one.text for one in chromium.find_elements(By.CSS_SELECTOR, ".be-downloads a")] == ["CSV", "Parquet"]
    for path, said in (
        ("/budgets?team=support", "your team"),
        ("/requests", "Prompts and answers are not stored"),
        ("/batches", "No batches yet"),
        ("/keys", "the lead"),
    ):
        go(chromium, running, path)
        see(chromium, said)
        shown = chromium.find_element(By.TAG_NAME, "body").text
        assert not [key for key in OTHER_KEYS if key in shown], path
    assert not [one.text for one in chromium.find_elements(By.TAG_NAME, "button") if "key" in one.text.lower()]


def test_a_key_that_was_revoked_meanwhile_leads_to_the_sign_in_and_back(
    chromium: webdriver.Chrome, running: Running
) -> None:
    with httpx.Client(
        base_url=f"{running.gateway}/admin/v1/keys",
        headers={"authorization": f"Bearer {running.month.owner_key}"},
        timeout=120,
        trust_env=False,
    ) as owner:
        made = owner.post("", json={"name": "to be revoked", "role": "viewer"}).json()
        chromium.delete_all_cookies()
        sign_in(chromium, running.ui, made["key"])
        owner.post(f"/{made['id']}/revoke").raise_for_status()
    go(chromium, running, "/explorer?by=model")
    see(chromium, "'to be revoked' was revoked")
    drain(chromium)
    chromium.find_element(By.LINK_TEXT, "Sign in with another key").click()
    see(chromium, "Sign in with an API key")
    chromium.find_element(By.ID, "key").send_keys(running.month.viewer_key)
    chromium.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
    see(chromium, "Every group")
    assert urlsplit(chromium.current_url).query == "by=model"
    chromium.delete_all_cookies()


def test_a_mistyped_address_leads_back(chromium: webdriver.Chrome, running: Running) -> None:
    chromium.delete_all_cookies()
    sign_in(chromium, running.ui, running.month.viewer_key)
    chromium.get(f"{running.ui}/ui/exploder")
    see(chromium, "No such page")
    drain(chromium)
    chromium.find_element(By.CSS_SELECTOR, "button").click()
    see(chromium, "Spent")
    assert urlsplit(chromium.current_url).path == "/ui/"
    asked = httpx.get(f"{running.ui}/ui/exploder", cookies=_cookies(chromium), trust_env=False, timeout=120)
    assert asked.status_code == 404
    chromium.delete_all_cookies()


def _cookies(browser: webdriver.Chrome) -> dict[str, str]:
    return {one["name"]: one["value"] for one in browser.get_cookies()}


def test_what_an_address_names_and_is_not_there_is_said(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/keys?change=key_of_nobody")
    see(browser, "There is no key with the id 'key_of_nobody'.")
    assert browser.find_elements(By.XPATH, "//h2[text()='Keys']"), "the list went with it"
    go(browser, running, "/requests?before=0123&model=gpt-5.4-mini")
    see(browser, "there is no such request")
    browser.find_element(By.LINK_TEXT, "Newest requests").click()
    patient(browser).until(lambda one: "before=" not in one.current_url)
    assert "model=gpt-5.4-mini" in browser.current_url
    drain(browser)
