"""Every page in windows of any width, in a real Chromium: nothing scrolls sideways, is cut off or leaves a gap."""

import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Running
from tests.browser.pictures import wait_until_settled
from tests.browser.steps import button, go, on_a_phone, on_paper, patient, see

pytestmark = [pytest.mark.browser, pytest.mark.integration]


def test_the_menu_of_a_phone_is_opened_and_left_by_the_keyboard(browser: webdriver.Chrome, running: Running) -> None:
    """What else a phone shows of every page: test_path_prefix.py."""
    with on_a_phone(browser):
        go(browser, running, "/audit")
        assert not [one for one in browser.find_elements(By.CSS_SELECTOR, ".be-nav") if one.is_displayed()]
        button(browser, "Menu").click()
        assert button(browser, "Menu").get_attribute("aria-expanded") == "true"
        ActionChains(browser).send_keys(Keys.TAB, Keys.ESCAPE).perform()
        assert button(browser, "Menu").get_attribute("aria-expanded") == "false"
        assert browser.switch_to.active_element.text == "Menu"
        ActionChains(browser).send_keys(Keys.ENTER).perform()
        browser.find_element(By.LINK_TEXT, "Routing rules").click()
        see(browser, "History")


def test_the_sliders_of_break_even_stay_in_the_window_of_a_tablet(browser: webdriver.Chrome, running: Running) -> None:
    try:
        go(browser, running, "/break-even")
        patient(browser).until(lambda one: one.find_element(By.CLASS_NAME, "be-lever"))
        for width in (1024, 1130):
            metrics = {"width": width, "height": 768, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            assert browser.execute_script("return document.documentElement.scrollWidth") == width
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_all_of_the_keys_table_is_in_the_window_of_a_laptop_and_alone_on_paper(
    browser: webdriver.Chrome, running: Running
) -> None:
    metrics = {"width": 1280, "height": 860, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        go(browser, running, "/keys")
        table = browser.find_element(By.CLASS_NAME, "be-scroll")
        assert browser.execute_script("return arguments[0].scrollWidth - arguments[0].clientWidth", table) == 0
        paper = on_paper(browser)
        assert "support-bot" in paper
        assert not [form for form in ("New key", "Change a key") if form in paper]
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_long_name_stays_in_its_column_on_a_phone(browser: webdriver.Chrome, running: Running) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    )
    over = """const [cell] = arguments, said = cell.querySelector('a') ?? cell; said.textContent = 't'.repeat(64);
      return cell.scrollWidth - cell.clientWidth"""
    try:
        for page in ("/explorer?by=team", "/budgets"):
            go(browser, running, page)
            cell = browser.find_element(By.CSS_SELECTOR, ".be-table tbody td")
            assert browser.execute_script(over, cell) == 0, page
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_last_row_of_tiles_leaves_no_hole_and_a_tablet_shows_all_columns(
    browser: webdriver.Chrome, running: Running
) -> None:
    ends = """return [...document.querySelectorAll('.be-tiles')].map((all) => [all.lastChild, all].map(
      (one) => Math.round(one.getBoundingClientRect().right)))"""
    cut = """return [...document.querySelectorAll('.be-scroll')]
      .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel)"""
    try:
        for page in ("/", "/backends"):
            go(browser, running, page)
            wait_until_settled(browser)
            for width in (360, 1024, 1280, 1440):
                metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 400}
                browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
                has_come = f"return innerWidth === {width}"  # a busy machine takes a moment
                patient(browser).until(lambda one, asked=has_come: one.execute_script(asked))
                found = browser.execute_script(ends)
                assert found
                assert all(last == whole for last, whole in found), (page, width)
                assert width < 1024 or not browser.execute_script(cut), (page, width)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
