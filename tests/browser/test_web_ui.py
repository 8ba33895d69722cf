"""What finance and admins do, in a real Chromium: numbers to the cent, rules edited and rolled back, roles, XSS."""

import csv
import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from urllib.parse import urlencode

import httpx
import pytest
from pyarrow import parquet
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from dashboards import display
from dashboards.pages import PAGES
from dashboards.screenshots import sign_in, wait_for_page
from dashboards.security import COOKIE
from gateway.routing.decide import SIMULATE_TAG
from tests.browser.conftest import Running, drain

pytestmark = [pytest.mark.browser, pytest.mark.integration]
SHORT_XSS = "<img src=x onerror=\"document.title='owned'\">"
XSS = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def go(browser: webdriver.Chrome, running: Running, path: str) -> None:
    browser.get(f"{running.ui}/ui{path}")
    wait_for_page(browser)


def see(browser: webdriver.Chrome, text: str) -> None:
    """Wait until the page says so."""
    WebDriverWait(browser, 20, ignored_exceptions=[StaleElementReferenceException, NoSuchElementException]).until(
        lambda one: text in one.find_element(By.TAG_NAME, "body").text, f"the page never said {text!r}"
    )


def button(browser: webdriver.Chrome, label: str) -> WebElement:
    found = [one for one in browser.find_elements(By.TAG_NAME, "button") if one.text.strip() == label]
    assert found, f"no button {label!r}"
    return found[0]


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


def test_the_overview_is_the_apis_own_numbers(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/")
    query = urlencode(dict(zip(("since", "until"), shown_period(browser), strict=True)))
    total = running.ask(f"/admin/v1/reports/overview?{query}")["total"]
    assert tile(browser, "Spend").get_attribute("title") == display.exact_dollars(total["cost_usd"])
    assert tile(browser, "Spend").find_element(By.CLASS_NAME, "be-tile-value").text == display.dollars(
        total["cost_usd"]
    )
    assert tile(browser, "Requests").find_element(By.CLASS_NAME, "be-tile-value").text == f"{total['requests']:,}"


def shown_period(browser: webdriver.Chrome) -> tuple[str, str]:
    """From the line under the heading, `22 Oct 2026 05:00 – 21 Nov 2026 05:00 UTC`."""
    text = browser.find_element(By.CLASS_NAME, "be-sub").text.removesuffix(" UTC")
    start, end = (datetime.strptime(part, "%d %b %Y %H:%M").replace(tzinfo=UTC) for part in text.split(" – "))
    return start.isoformat(), end.isoformat()


def test_from_a_sum_to_the_price_lines_of_one_request(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/explorer?by=team")
    browser.find_element(By.LINK_TEXT, "research").click()
    see(browser, "Prompts and answers are not stored")
    teams = [row.find_elements(By.TAG_NAME, "td")[2].text for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")]
    assert set(teams) == {"research"}
    browser.find_element(By.CSS_SELECTOR, "tbody tr a").click()
    see(browser, "They add up to the cost exactly")
    request_id = browser.current_url.rpartition("id=")[2]
    entry = running.ask(f"/admin/v1/entries/{request_id}")
    lines = [row.find_elements(By.TAG_NAME, "td")[2].text for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")]
    *parts, total = [Decimal(line.replace("$", "")) for line in lines if line.startswith("$")][
        : len(entry["lines"]) + 1
    ]
    assert sum(parts) == total == Decimal(entry["cost_usd"])


def test_the_export_equals_the_screen(browser: webdriver.Chrome, running: Running) -> None:
    now = datetime.now(UTC)
    bounds = {
        "since": (now - timedelta(days=28)).date().isoformat(),
        "until": (now + timedelta(days=1)).date().isoformat(),
    }
    go(browser, running, f"/explorer?by=team&{urlencode(bounds)}")
    files = [download(browser, one) for one in browser.find_elements(By.CSS_SELECTOR, ".be-downloads a")]
    costs, costs_parquet, focus, focus_parquet = files
    cells = [row.find_elements(By.TAG_NAME, "td") for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")]
    shown, total = [row[5].text for row in cells[:-1]], cells[-1][5]
    for exported in (csv_column(costs, "cost_usd"), parquet_column(costs_parquet, "cost_usd")):
        assert [display.dollars(str(cost)) for cost in exported] == shown
    used = [meter != "Idle GPU Seconds" for meter in csv_column(focus, "SkuMeter")]
    for exported in (csv_column(focus, "EffectiveCost"), parquet_column(focus_parquet, "EffectiveCost")):
        spent = sum(Decimal(cost) for cost, is_used in zip(exported, used, strict=True) if is_used)
        assert display.exact_dollars(str(spent)) == total.get_attribute("title"), "idle rent has rows of its own"


def download(browser: webdriver.Chrome, link: WebElement) -> bytes:
    address, cookie = link.get_attribute("href"), browser.get_cookie(COOKIE)
    assert address is not None
    assert cookie is not None
    answer = httpx.get(address, cookies={COOKIE: cookie["value"]}, trust_env=False, timeout=30)
    answer.raise_for_status()
    return answer.content


def csv_column(content: bytes, name: str) -> list[str]:
    return [row[name] for row in csv.DictReader(io.StringIO(content.decode()))]


def parquet_column(content: bytes, name: str) -> list[Decimal]:
    return parquet.read_table(io.BytesIO(content)).column(name).to_pylist()


def test_a_rule_edited_wrongly_then_rightly_replayed_activated_and_rolled_back(
    browser: webdriver.Chrome, running: Running
) -> None:
    go(browser, running, "/rules")
    before = running.ask("/admin/v1/rules")["active"]
    set_rules(browser, "choose: {from: any", "chose: {from: any")
    button(browser, "Check").click()
    see(browser, "is not a known field")
    line = browser.find_element(By.CSS_SELECTOR, ".be-error-line").text
    assert "chose:" in line
    set_rules(browser, "chose: {from: any", "choose: {from: any")
    set_rules(browser, "from: any", "from: local")
    button(browser, "Compare").click()
    see(browser, "What changes")
    assert browser.find_elements(By.CSS_SELECTOR, ".be-sides .add")
    button(browser, "Replay last week").click()
    see(browser, "go elsewhere")
    button(browser, "Save and activate").click()
    see(browser, "is active now")
    after = running.ask("/admin/v1/rules")
    assert after["active"] != before
    WebDriverWait(browser, 10).until(lambda _: running.ask("/admin/v1/rules")["applied"] == after["active"])
    models = running.ask("/admin/v1/models")
    assert models["rules_version"].startswith(after["active"])
    button(browser, f"Roll back to {before}").click()
    see(browser, "is active now")
    WebDriverWait(browser, 10).until(lambda _: running.ask("/admin/v1/rules")["active"] == before)
    go(browser, running, "/audit")
    see(browser, "is intact")
    table = browser.find_element(By.CSS_SELECTOR, "tbody").text
    assert "demo-owner" in table
    assert "rules.activate" in table


def test_the_editor_suggests_what_the_schema_allows(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/rules")
    wait = WebDriverWait(browser, 20)
    wait.until(lambda one: one.find_element(By.CSS_SELECTOR, ".be-editor").get_attribute("data-completes"))
    browser.execute_script(
        """const content = document.querySelector('.cm-content'), view = content.cmTile?.view ?? content.cmView?.view;
        const at = view.state.doc.toString().lastIndexOf('choose: {') + 'choose: {'.length;
        view.dispatch({selection: {anchor: at}, scrollIntoView: true}); view.focus();"""
    )
    ActionChains(browser).key_down(Keys.CONTROL).send_keys(" ").key_up(Keys.CONTROL).perform()
    options = wait.until(lambda one: one.find_elements(By.CSS_SELECTOR, ".cm-tooltip-autocomplete li"))
    shown = [option.find_element(By.CSS_SELECTOR, ".cm-completionLabel").text for option in options]
    assert {"from", "by", "min_quality"} <= set(shown)


def test_a_mistake_is_shown_at_its_line_without_being_asked(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/rules")
    set_rules(browser, "by: expected_cost", "by: cheapest")
    see(browser, "rules.2.choose.by")
    assert "cheapest" in browser.find_element(By.CSS_SELECTOR, ".be-error-line").text
    set_rules(browser, "by: cheapest", "by: expected_cost")
    see(browser, "Valid.")


def test_the_form_edits_the_text(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/rules")
    button(browser, "Form").click()
    see(browser, "tags private → local")
    rules = browser.find_elements(By.CSS_SELECTOR, ".be-rule")
    difficulty = rules[1].find_element(By.CSS_SELECTOR, "input[aria-label='Difficulty at most']")
    difficulty.send_keys(Keys.CONTROL + "a")
    difficulty.send_keys("0.3" + Keys.TAB)
    see(browser, "difficulty at most 0.3 → any")
    rules[1].find_element(By.CSS_SELECTOR, "button[aria-label='Move up']").click()
    wait = WebDriverWait(browser, 20, ignored_exceptions=[StaleElementReferenceException, NoSuchElementException])
    wait.until(
        lambda one: one.find_element(By.CSS_SELECTOR, ".be-rule input").get_attribute("value") == "easy-goes-cheap"
    )
    button(browser, "Compare").click()
    see(browser, "What changes")
    added = " ".join(cell.text for cell in browser.find_elements(By.CSS_SELECTOR, ".be-sides .add"))
    assert "difficulty: {at_most: 0.3}" in added
    assert "# Easy prompts go wherever they cost least" in added, "a rule moves with its comment"
    button(browser, "Check").click()
    see(browser, "Valid.")


def test_finance_sets_a_budget_and_sees_it_used(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/budgets")
    see(browser, "Chance of exceeding")
    browser.find_element(By.CSS_SELECTOR, "input[aria-label='Name']").send_keys("search" + Keys.TAB)
    browser.find_element(By.CSS_SELECTOR, "input[aria-label='Dollars a month']").send_keys("$1,234.50" + Keys.TAB)
    button(browser, "Set budget").click()
    see(browser, "Team search")
    budgets = {one["name"]: one for one in running.ask("/admin/v1/budgets", running.month.viewer_key)["budgets"]}
    assert Decimal(budgets["search"]["month_usd"]) == Decimal("1234.5")
    [cells] = [
        [cell.text for cell in row.find_elements(By.TAG_NAME, "td")]
        for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")
        if row.text.startswith("Team search")
    ]
    assert cells[1:3] == ["$1,234.50", display.dollars(budgets["search"]["spent_usd"])]


def test_a_slider_computes_break_even_again(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/break-even")
    before = tile(browser, "With this plan").text
    handle = browser.find_element(By.CSS_SELECTOR, ".be-lever .q-slider__track-container")
    browser.execute_script("arguments[0].focus()", handle)
    ActionChains(browser).send_keys(Keys.ARROW_RIGHT * 12).perform()
    wait = WebDriverWait(browser, 30, ignored_exceptions=[StaleElementReferenceException, StopIteration])
    wait.until(lambda one: tile(one, "With this plan").text != before)
    assert "gpu_hour_usd=" in browser.current_url
    query = browser.current_url.partition("?")[2]
    found = running.ask(f"/admin/v1/reports/break-even?{query}")["report"]
    assert display.dollars(found["month"]["plan_usd"]) in tile(browser, "With this plan").text


def test_limits_of_a_key_are_changed_where_it_is_listed(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/keys")
    assert "$40.00 a month, 600 requests / min" in browser.find_element(By.TAG_NAME, "table").text


def test_a_hostile_prompt_and_key_name_are_shown_as_text(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/try")
    area = browser.find_element(By.TAG_NAME, "textarea")
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


def test_every_page_stands_on_a_phone_without_sideways_scrolling(browser: webdriver.Chrome, running: Running) -> None:
    size = browser.get_window_size()
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        wide: list[str] = []
        for spec in PAGES:
            go(browser, running, spec.path)
            if browser.execute_script("return document.documentElement.scrollWidth") > metrics["width"]:
                wide.append(spec.path)
        assert not wide
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.set_window_size(size["width"], size["height"])


def test_a_key_is_made_once_and_works(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/keys")
    browser.find_element(By.CSS_SELECTOR, "input[aria-label=Name]").send_keys("from the browser" + Keys.TAB)
    button(browser, "Create").click()
    see(browser, "it is not shown again")
    secret = browser.find_element(By.CLASS_NAME, "be-secret").text
    assert running.ask("/v1/models", secret)["data"]
    go(browser, running, "/keys")
    see(browser, "from the browser")
    assert secret not in browser.page_source


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
    assert chromium.current_url.endswith("/ui/sign-in")
    chromium.find_element(By.ID, "key").send_keys("bk-wrong")
    chromium.find_element(By.CSS_SELECTOR, "button").click()
    see(chromium, "This key is not known here")
    chromium.get(f"{running.ui}/ui/sign-in")
    chromium.find_element(By.ID, "key").send_keys(running.month.app_key)
    chromium.find_element(By.CSS_SELECTOR, "button").click()
    see(chromium, "may call models but not look into the books")
    drain(chromium)


def test_signing_out_ends_the_session_on_the_server(browser: webdriver.Chrome, running: Running) -> None:
    cookie = browser.get_cookie(COOKIE)
    assert cookie is not None
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Lax"
    button(browser, "Sign out").click()
    see(browser, "API key")
    again = httpx.get(f"{running.ui}/ui/", cookies={COOKIE: cookie["value"]}, trust_env=False, timeout=30)
    assert again.status_code == 303
