"""Budgets set and removed in a real Chromium, and what-ifs asked."""

from decimal import Decimal

import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from dashboards import display
from tests.browser.conftest import Running
from tests.browser.steps import button, go, on_paper, option, patient, see, tile

pytestmark = [pytest.mark.browser, pytest.mark.integration]


def test_finance_sets_a_budget_and_sees_it_used(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/budgets")
    see(browser, "Chance of exceeding")
    button(browser, "Set budget").click()
    see(browser, "Dollars a month: is not an amount of dollars")
    assert problem_of_focused(browser).startswith("Dollars a month: is not an amount of dollars")
    button(browser, "Remove").click()
    see(browser, "Choose the budget to remove.")
    assert problem_of_focused(browser) == "Choose the budget to remove."
    assert len(browser.find_elements(By.CSS_SELECTOR, "[aria-invalid=true]")) == 1
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
    paper = on_paper(browser)
    assert "The next 30 days: $" in paper, "a figure that the page has too"
    assert "Set budget" not in paper


def problem_of_focused(browser: webdriver.Chrome) -> str:
    """The message that describes the focused field."""
    patient(browser).until(lambda one: one.switch_to.active_element.get_attribute("aria-invalid"))
    place = browser.switch_to.active_element.get_attribute("aria-describedby") or ""
    return browser.find_element(By.ID, place).text


def test_a_budget_is_removed_only_once_that_was_confirmed(browser: webdriver.Chrome, running: Running) -> None:
    def names() -> set[str]:
        return {one["name"] for one in running.ask("/admin/v1/budgets")["budgets"]}

    running.put("/admin/v1/budgets", scope="team", name="to be removed", month_usd="5", stops=True)
    go(browser, running, "/budgets")
    see(browser, "nothing: it has no key")
    browser.find_element(By.CSS_SELECTOR, "input[aria-label='Budget to remove']").send_keys("be rem")
    patient(browser).until(lambda one: option(one, "Team to be removed")).click()
    button(browser, "Remove").send_keys(Keys.ENTER)
    see(browser, "Requests are no longer refused because of it")
    assert "to be removed" in names(), "asked, not done"
    dialog = browser.find_element(By.CSS_SELECTOR, "[role=alertdialog]")
    assert dialog.accessible_name.startswith("Remove the budget 'Team to be removed'?")
    ActionChains(browser).send_keys(Keys.ESCAPE).perform()
    patient(browser).until(lambda one: not one.find_elements(By.CSS_SELECTOR, "[role=alertdialog]"))
    patient(browser).until(lambda one: one.switch_to.active_element.text == "Remove", "asked from there")
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    see(browser, "Requests are no longer refused because of it")
    button(browser, "Remove it").click()
    patient(browser).until(lambda _: "to be removed" not in names())


@pytest.mark.parametrize("path", ["/budgets", "/budgets?find=research"])
def test_another_amount_leaves_a_budget_that_stops_stopping(
    path: str, browser: webdriver.Chrome, running: Running
) -> None:
    """Even for a budget that the page does not show. Enter submits the form."""
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
    charts = browser.find_elements(By.CLASS_NAME, "be-chart")
    browser.find_element(By.CSS_SELECTOR, ".be-numbers summary").click()
    rows = wait.until(lambda one: one.find_elements(By.CSS_SELECTOR, ".be-numbers tbody tr"))
    numbers = rows[-1].text
    browser.execute_script("arguments[0].focus()", handle)
    ActionChains(browser).send_keys(Keys.ARROW_RIGHT * 12).perform()
    wait.until(lambda one: tile(one, "With this plan").text != before)
    wait.until(lambda one: "gpu_hour_usd=" in one.current_url)

    def is_the_reports(one: webdriver.Chrome) -> bool:
        """Whether the report is for the price in the address: each press changes first one, then the other."""
        query = one.current_url.partition("?")[2]
        found = running.ask(f"/admin/v1/reports/break-even?{query}")["report"]
        return display.dollars(found["month"]["plan_usd"]) in tile(one, "With this plan").text

    wait.until(is_the_reports, "the tile shows another amount than the report")
    assert [one.is_displayed() for one in charts] == [True, True], "drawn again, not anew"
    wait.until(lambda one: one.find_elements(By.CSS_SELECTOR, ".be-numbers tbody tr")[-1].text not in (numbers, ""))

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
