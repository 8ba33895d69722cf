"""Batches followed and cancelled in a real Chromium."""

import json

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.browser.conftest import Running
from tests.browser.steps import button, go, patient, see

pytestmark = [pytest.mark.browser, pytest.mark.integration]


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
    browser.execute_script(
        """window.isSamePage = true; document.body.style.width = '500px';
        const table = document.querySelector('.be-scroll'), row = document.querySelectorAll('tbody tr')[1];
        table.scrollLeft = 120; row.querySelector('a').focus({preventScroll: true});
        getSelection().selectAllChildren(row.children[5])"""
    )
    cancel_batch(running, second)
    patient(browser).until(lambda one: second not in one.find_element(By.CSS_SELECTOR, "tbody").text)
    left = browser.execute_script(
        """return [document.querySelector('.be-scroll').scrollLeft, document.activeElement.textContent,
        getSelection().toString()]"""
    )
    assert left == [120, first, "support"], "what was scrolled, has the focus and is marked"
    cancel_batch(running, first)
    see(browser, "No batch is under way")
    assert not button_is_shown(browser, "Cancel"), "there is none to choose"
    ended = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")[:2]]
    assert all(batch in row and "cancelled" in row for batch, row in zip((second, first), ended, strict=True))
    assert browser.execute_script("return window.isSamePage")


def test_a_batch_leads_to_its_requests_and_to_what_they_came_to(browser: webdriver.Chrome, running: Running) -> None:
    """The batch has no requests, because no model here could answer them."""
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
    """Create a batch, which no model here can answer; returns its id."""
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
