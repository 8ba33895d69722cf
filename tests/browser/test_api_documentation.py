"""The gateway's `/docs` in a browser that reaches no other host."""

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.conftest import Running, console_errors, drain, foreign_requests
from tests.browser.pictures import PATIENCE_SECONDS

pytestmark = pytest.mark.integration


def test_the_api_can_be_read_and_tried_without_internet(chromium: webdriver.Chrome, running: Running) -> None:
    drain(chromium)
    chromium.get(f"{running.gateway}/docs")
    wait = WebDriverWait(chromium, PATIENCE_SECONDS)
    wait.until(lambda seen: "/v1/chat/completions" in seen.find_element(By.ID, "swagger-ui").text)
    wait.until(lambda seen: seen.find_element(By.CSS_SELECTOR, '[data-path="/healthz"]')).click()
    wait.until(lambda seen: seen.find_element(By.CSS_SELECTOR, ".try-out__btn")).click()
    wait.until(lambda seen: seen.find_element(By.CSS_SELECTOR, ".execute")).click()
    wait.until(lambda seen: '"status"' in seen.find_element(By.CSS_SELECTOR, ".live-responses-table").text)
    assert not foreign_requests(chromium, running.gateway), "a request left the host"
    assert not console_errors(chromium), "the console has errors"
