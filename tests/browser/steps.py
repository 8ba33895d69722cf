"""What a person does with a page, one function each."""

import contextlib
from collections.abc import Callable, Generator
from typing import TypeVar

import httpx
import pytest
from selenium import webdriver
from selenium.common.exceptions import (
    NoSuchElementException,
    StaleElementReferenceException,
    TimeoutException,
    WebDriverException,
)
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from dashboards.security import COOKIE
from tests.browser.conftest import Running
from tests.browser.pictures import PATIENCE_SECONDS, wait_for_page

T = TypeVar("T")
GONE = "does not belong to the document"
"""How Chromium's driver says that an element is stale if the next page comes while it looks at it."""


def go(browser: webdriver.Chrome, running: Running, path: str) -> None:
    browser.get(f"{running.ui}/ui{path}")
    wait_for_page(browser)


@contextlib.contextmanager
def on_a_phone(browser: webdriver.Chrome) -> Generator[int]:
    """Pages have a narrow phone's width in the block, which is given."""
    size = browser.get_window_size()
    metrics = {"width": (width := 320), "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        yield width
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.set_window_size(size["width"], size["height"])


def on_paper(browser: webdriver.Chrome) -> str:
    """The text that a print of the page has."""
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        return browser.find_element(By.TAG_NAME, "body").text
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def see(browser: webdriver.Chrome, text: str) -> None:
    """Wait until the page shows this text."""
    try:
        patient(browser).until(lambda one: text in one.find_element(By.TAG_NAME, "body").text)
    except TimeoutException:
        shown = browser.find_element(By.TAG_NAME, "body").text
        pytest.fail(f"the page never said {text!r}, but:\n{shown}")


class _Patience(WebDriverWait[webdriver.Chrome]):
    def until(self, method: Callable[[webdriver.Chrome], T], message: str = "") -> T:
        def tried(browser: webdriver.Chrome) -> T:
            try:
                return method(browser)
            except WebDriverException as error:
                if GONE in str(error):
                    raise StaleElementReferenceException from error
                raise

        return super().until(tried, message)


def patient(browser: webdriver.Chrome) -> WebDriverWait[webdriver.Chrome]:
    """Waits as long as a busy machine may need. An element that is missing or stale is looked for again."""
    ignored = [StaleElementReferenceException, NoSuchElementException, StopIteration]
    return _Patience(browser, PATIENCE_SECONDS, ignored_exceptions=ignored)


def button(browser: webdriver.Chrome, label: str) -> WebElement:
    """Waits until it is visible: many buttons only appear as a result of the previous step."""
    return patient(browser).until(
        lambda one: next(found for found in one.find_elements(By.TAG_NAME, "button") if found.text.strip() == label),
        f"no button {label!r}",
    )


def option(browser: webdriver.Chrome, text: str) -> WebElement:
    return next(one for one in browser.find_elements(By.CSS_SELECTOR, ".q-menu .q-item") if one.text == text)


def tile(browser: webdriver.Chrome, label: str) -> WebElement:
    tiles = browser.find_elements(By.CSS_SELECTOR, ".be-tile")
    return next(one for one in tiles if one.find_element(By.CLASS_NAME, "be-tile-label").text == label)


def set_rules(browser: webdriver.Chrome, old: str, new: str) -> None:
    """Edit as CodeMirror would: through its own transaction, which tells the server."""
    changed = browser.execute_script(
        """const content = document.querySelector('.cm-content'), view = content.cmTile?.view ?? content.cmView?.view;
        const text = view.state.doc.toString(), at = text.lastIndexOf(arguments[0]);
        if (at < 0) return false;
        view.dispatch({changes: {from: at, to: at + arguments[0].length, insert: arguments[1]}});
        return true;""",
        old,
        new,
    )
    assert changed, f"{old!r} is not in the editor"


def suggested_after(browser: webdriver.Chrome, text: str) -> list[str]:
    """What the rules editor suggests after the last `text` in it."""
    wait = patient(browser)
    wait.until(lambda one: one.find_element(By.CSS_SELECTOR, ".be-editor").get_attribute("data-completes"))
    browser.execute_script(
        """const content = document.querySelector('.cm-content'), view = content.cmTile?.view ?? content.cmView?.view;
        const at = view.state.doc.toString().lastIndexOf(arguments[0]) + arguments[0].length;
        view.dispatch({selection: {anchor: at}, scrollIntoView: true}); view.focus();""",
        text,
    )
    ActionChains(browser).key_down(Keys.CONTROL).send_keys(" ").key_up(Keys.CONTROL).perform()
    options = wait.until(lambda one: one.find_elements(By.CSS_SELECTOR, ".cm-tooltip-autocomplete li"))
    return [option.find_element(By.CSS_SELECTOR, ".cm-completionLabel").text for option in options]


def end_session(browser: webdriver.Chrome, url: str) -> None:
    """Ends the session without the page, as its expiry would."""
    csrf = browser.find_element(By.CSS_SELECTOR, "input[name=csrf]").get_attribute("value") or ""
    cookie = browser.get_cookie(COOKIE) or {}
    cookies = {COOKIE: cookie["value"]}
    httpx.post(f"{url}/ui/sign-out", data={"csrf": csrf}, cookies=cookies, timeout=60, trust_env=False)
