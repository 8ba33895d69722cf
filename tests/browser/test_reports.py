"""What finance reads in a real Chromium: numbers to the cent, rows in order, charts, downloads."""

import csv
import io
import itertools
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from urllib.parse import urlencode

import httpx
import pytest
from pyarrow import parquet
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from dashboards import display
from dashboards.charts import CENT_TICK, DOLLAR_TICK
from dashboards.security import COOKIE
from dashboards.table_part import ROWS
from tests.browser.conftest import Running
from tests.browser.pictures import wait_for_page
from tests.browser.steps import go, patient, see, tile

pytestmark = [pytest.mark.browser, pytest.mark.integration]


def test_the_overview_is_the_apis_own_numbers(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/")
    browser.find_element(By.CSS_SELECTOR, ".be-numbers summary").send_keys(Keys.ENTER)
    days = patient(browser).until(lambda one: one.find_elements(By.CSS_SELECTOR, ".be-numbers tbody tr"))
    assert 25 < len(days) < 33, "what the chart draws, for who cannot see it"
    query = urlencode(dict(zip(("since", "until"), shown_period(browser), strict=True)))
    total = running.ask(f"/admin/v1/reports/overview?{query}")["total"]
    assert tile(browser, "Spend").get_attribute("title") == display.exact_dollars(total["cost_usd"])
    assert tile(browser, "Spend").find_element(By.CLASS_NAME, "be-tile-value").text == display.dollars(
        total["cost_usd"]
    )
    assert tile(browser, "Requests").find_element(By.CLASS_NAME, "be-tile-value").text == f"{total['requests']:,}"


def shown_period(browser: webdriver.Chrome) -> tuple[str, str]:
    """The period in the line under the heading, `22 Oct 2026 05:00 – 21 Nov 2026 05:00 UTC`."""
    text = browser.find_element(By.CLASS_NAME, "be-sub").text.removesuffix(" UTC")
    start, end = (datetime.strptime(part, "%d %b %Y %H:%M").replace(tzinfo=UTC) for part in text.split(" – "))
    return start.isoformat(), end.isoformat()


def test_days_are_chosen_by_keys_and_left_by_them(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/requests")
    range_of_days = browser.find_element(By.CLASS_NAME, "be-range")
    opener = range_of_days.find_element(By.TAG_NAME, "summary")
    browser.execute_script("arguments[0].focus()", opener)
    escape = ActionChains(browser).send_keys(Keys.ESCAPE)
    backwards = ActionChains(browser).key_down(Keys.SHIFT).send_keys(Keys.TAB, Keys.TAB).key_up(Keys.SHIFT)
    for leaving in (escape, backwards):
        ActionChains(browser).send_keys(Keys.ENTER, Keys.TAB).perform()
        assert browser.switch_to.active_element.get_attribute("name") == "since"
        leaving.perform()
        assert range_of_days.get_attribute("open") is None, "it hides what is below"
        assert range_of_days.find_element(By.TAG_NAME, "input").is_displayed() is False
        browser.execute_script("arguments[0].focus()", opener)


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


def test_a_day_of_a_key_leads_to_its_requests(browser: webdriver.Chrome, running: Running) -> None:
    """For dates chosen by hand, both included, the list has as many requests as the row."""
    now = datetime.now(UTC)
    days = {"since": f"{now - timedelta(days=9):%Y-%m-%d}", "last": f"{now - timedelta(days=2):%Y-%m-%d}"}
    go(browser, running, f"/explorer?by=day&then=key&{urlencode(days)}")
    assert f"{now - timedelta(days=1):%-d %b %Y} 00:00 UTC" in browser.find_element(By.CLASS_NAME, "be-sub").text
    row = browser.find_element(By.CSS_SELECTOR, "tbody tr")
    day, key, requests = (row.find_elements(By.TAG_NAME, "td")[n].text for n in (0, 1, 4))
    assert not key.startswith("key_"), "a person knows keys by name"
    row.find_element(By.TAG_NAME, "a").click()
    see(browser, "Prompts and answers are not stored")
    wait_for_page(browser)
    times = [one.text for one in browser.find_elements(By.CSS_SELECTOR, "tbody tr td:first-child")]
    assert len(times) == int(requests)
    assert all(one.startswith(f"{day.rpartition(' ')[0]} ") for one in times), "the same day, without its year"


def test_rows_stand_in_the_order_of_the_heading_that_was_pressed(browser: webdriver.Chrome, running: Running) -> None:
    go(browser, running, "/explorer?by=key&then=model&period=7d")
    for expected in ("descending", "ascending"):
        browser.find_element(By.XPATH, "//th/a[.='Requests']").click()
        wait_for_page(browser)
        heading = browser.find_element(By.XPATH, "//th[a='Requests']")
        assert heading.get_attribute("aria-sort") == expected
        *rows, total = browser.find_elements(By.CSS_SELECTOR, "tbody tr")
        counts = [int(row.find_elements(By.TAG_NAME, "td")[4].text.replace(",", "")) for row in rows]
        assert counts == sorted(counts, reverse=expected == "descending")
        assert len(set(counts)) > 1
        assert total.text.startswith("Total"), "which is no group"
    assert "period=7d" in browser.current_url


def test_every_group_is_on_one_of_the_pages_of_its_order(browser: webdriver.Chrome, running: Running) -> None:
    """Groups after the five hundredth used to be in the files only. Many groups here have equal numbers of requests."""
    asked = {"by": "hour", "then": "key", "tag": "demo", "order": "requests", "period": "30d", "page": "2"}
    go(browser, running, f"/explorer?{urlencode(asked)}")
    since, until = shown_period(browser)
    report = running.ask(f"/admin/v1/reports/costs?{urlencode({**asked_of_books(since, until), 'tag': 'demo'})}")
    assert len(report["rows"]) > ROWS
    assert not browser.find_elements(By.CLASS_NAME, "be-chart"), "which the first page has"
    browser.find_element(By.LINK_TEXT, "Previous").click()
    pages = [groups_shown(browser)]
    assert browser.find_elements(By.CLASS_NAME, "be-chart")
    while following := browser.find_elements(By.LINK_TEXT, "Next"):
        following[0].click()
        pages.append(groups_shown(browser))
        assert rows_of(browser)[-1].find_elements(By.TAG_NAME, "td")[4].text == f"{report['total']['requests']:,}"
        for kept in ("tag=demo", "order=requests", "by=hour", "then=key"):
            assert kept in browser.current_url
    shown = [one for page in pages for one in page]
    assert len(set(shown)) == len(shown) == len(report["rows"])
    counts = [int(requests) for _, _, requests in shown]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == report["total"]["requests"]
    browser.find_element(By.XPATH, "//th/a[.='Spend']").click()
    see(browser, f"Groups 1 to {ROWS} of {len(shown):,}")
    files = browser.find_elements(By.CSS_SELECTOR, ".be-downloads a")
    assert len(csv_column(download(browser, files[0]), "cost_usd")) == len(shown)


def asked_of_books(since: str, until: str) -> dict[str, str]:
    return {"by": "hour,key", "costs_alone": "true", "since": since, "until": until}


def groups_shown(browser: webdriver.Chrome) -> list[tuple[str, str, str]]:
    """Hour, key and requests of each row except the total, read by one script because there are hundreds."""
    wait_for_page(browser)
    script = """const rows = [...document.querySelectorAll('tbody tr')];
        return rows.map((row) => [0, 1, 4].map((n) => row.cells[n].innerText));"""
    return [(hour, key, requests) for hour, key, requests in browser.execute_script(script)[:-1]]


def test_a_time_that_the_books_hold_a_part_of_is_not_compared_with(browser: webdriver.Chrome, running: Running) -> None:
    """The demonstration's month used to be shown as ten times the one before, although its books begin within that."""
    now = datetime.now(UTC)
    for days, is_whole in ((7, True), (20, False)):
        last = now - timedelta(days=1)
        asked = {"since": f"{last - timedelta(days=days - 1):%Y-%m-%d}", "last": f"{last:%Y-%m-%d}"}
        go(browser, running, f"/explorer?by=team&{urlencode(asked)}")
        changes = {row.find_elements(By.TAG_NAME, "td")[2].text for row in rows_of(browser)}
        assert any("%" in one for one in changes) is is_whole
        text = browser.find_element(By.CLASS_NAME, "be-main").text
        assert ("The change is against " in text) is is_whole
        assert ("The books begin on " in text) is not is_whole
        assert ("into the period before" in text) is not is_whole
        go(browser, running, f"/?{urlencode(asked)}")
        note = tile(browser, "Spend").find_element(By.CLASS_NAME, "be-tile-note").text
        assert ("within which the books begin" in note) is not is_whole
        assert ("against as long a time before" in note) is is_whole


def rows_of(browser: webdriver.Chrome) -> list[WebElement]:
    """The rows of the page's table, including the total."""
    return browser.find_elements(By.CSS_SELECTOR, "tbody tr")


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
    shown, total = [row[1].text for row in cells[:-1]], cells[-1][1]
    for exported in (csv_column(costs, "cost_usd"), parquet_column(costs_parquet, "cost_usd")):
        assert display.dollar_column([str(cost) for cost in [*exported, sum(map(Decimal, exported))]])[:-1] == shown
    used = [meter != "Idle GPU Seconds" for meter in csv_column(focus, "SkuMeter")]
    for exported in (csv_column(focus, "EffectiveCost"), parquet_column(focus_parquet, "EffectiveCost")):
        spent = sum(Decimal(cost) for cost, is_used in zip(exported, used, strict=True) if is_used)
        assert display.exact_dollars(str(spent)) == total.get_attribute("title"), "idle rent has rows of its own"
    go(browser, running, f"/explorer?by=team&{urlencode({**bounds, 'as_of': now.date().isoformat()})}")
    see(browser, f"Corrections booked from {now:%-d %b %Y} 00:00 UTC on are left out")
    links = [one.get_attribute("href") or "" for one in browser.find_elements(By.CSS_SELECTOR, ".be-downloads a")]
    assert len(links) == sum(f"as_of={now.date().isoformat()}" in one for one in links) == len(files)


def download(browser: webdriver.Chrome, link: WebElement) -> bytes:
    address, cookie = link.get_attribute("href"), browser.get_cookie(COOKIE)
    assert address is not None
    assert cookie is not None
    answer = httpx.get(address, cookies={COOKIE: cookie["value"]}, trust_env=False, timeout=120)
    answer.raise_for_status()
    return answer.content


def csv_column(content: bytes, name: str) -> list[str]:
    return [row[name] for row in csv.DictReader(io.StringIO(content.decode()))]


def parquet_column(content: bytes, name: str) -> list[Decimal]:
    return parquet.read_table(io.BytesIO(content)).column(name).to_pylist()


def test_a_time_without_traffic_leads_on(browser: webdriver.Chrome, running: Running) -> None:
    """The page points to a period with traffic, not to a first request."""
    for page in ("/", "/requests", "/explorer", "/utilisation"):
        go(browser, running, f"{page}?since=2020-01-01&last=2020-01-02")
        assert "The books begin on" in browser.find_element(By.CLASS_NAME, "be-message").text
        assert not browser.find_elements(By.CLASS_NAME, "be-secret")


def test_a_tick_says_what_it_stands_for(browser: webdriver.Chrome) -> None:
    """A first day's axis used to have `$0` at every tick, and a month's `$0.2` above `$0.15`."""
    cents = {0: "$0", 0.0002: "$0.0002", 0.30000000000000004: "$0.30", -1.5: "−$1.50", 1: "$1.00"}
    whole = {0: "$0", -20: "−$20", 1.25e9: "$1,250,000,000"}
    for tick, ticks in ((CENT_TICK, cents), (DOLLAR_TICK, whole)):
        said = browser.execute_script(f"return arguments[0].map({tick})", list(ticks))
        assert said == list(ticks.values())


def test_a_chart_shows_utc_to_who_lives_elsewhere(browser: webdriver.Chrome, running: Running) -> None:
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "America/Los_Angeles"})
    try:
        go(browser, running, "/")
        places = itertools.cycle((0, 20, -20))

        def tips(one: webdriver.Chrome) -> list[str]:
            """Moves the pointer each time: a chart drawn after the pointer arrived only reacts to the next move, which
            does not always scroll to it."""
            chart = one.find_element(By.CSS_SELECTOR, ".be-chart canvas")
            one.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
            ActionChains(one).move_to_element_with_offset(chart, next(places), 0).perform()
            boxes = one.find_elements(By.CSS_SELECTOR, ".be-chart > div")
            return [text for box in boxes if "$" in (text := box.text)]  # read once, since it disappears again

        tip = patient(browser).until(tips)
        day = datetime.strptime(tip[0].splitlines()[0], "%d %b %Y").replace(tzinfo=UTC)
        assert timedelta() < datetime.now(UTC) - day < timedelta(days=32), "a day, not an hour of the one before"
    finally:
        browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})
