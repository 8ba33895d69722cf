"""The web UI under a path of a host that others share, behind a proxy that takes the path off."""

import re
import sys
from collections.abc import Iterator
from urllib.parse import urljoin

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from dashboards.pages import PAGES
from dashboards.security import COOKIE
from tests.browser import axe
from tests.browser.conftest import Running, child, console_errors, drain, foreign_requests, ui_command
from tests.browser.pictures import sign_in, wait_for_page, wait_until_settled
from tests.browser.steps import button, on_a_phone, patient, see, suggested_after
from tests.ports import free_port

pytestmark = [pytest.mark.browser, pytest.mark.integration]
PREFIX = "/tools/breakeven"
ADDRESS = re.compile(r'(?<= )(?:href|src|action)="([^"#]*)"')


@pytest.fixture(scope="module")
def shared_host(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the UI, without /ui."""
    logs = tmp_path_factory.mktemp("prefix")
    pages, proxy = free_port(), free_port()
    command = [*ui_command(running.gateway, pages), "--path-prefix", PREFIX]
    proxying = [sys.executable, "-m", "tests.stripping_proxy", str(proxy), str(pages), PREFIX]
    host = f"http://127.0.0.1:{proxy}"
    with (
        child(command, f"http://127.0.0.1:{pages}/ui/healthz", logs / "ui.log", {}),
        child(proxying, host, logs / "proxy.log", {}),
    ):
        yield f"{host}{PREFIX}"


def test_every_address_on_the_way_in_has_the_path(running: Running, shared_host: str) -> None:
    with httpx.Client(trust_env=False, timeout=300, follow_redirects=True) as client:
        form = client.get(f"{shared_host}/")
        assert form.url == f"{shared_host}/ui/sign-in"
        token = re.search(r'name="token" value="([0-9a-f]+)"', form.text)
        assert token is not None
        given = {"key": running.month.viewer_key, "token": token[1], "next": "/ui/models"}
        page = client.post(urljoin(f"{form.url}", "sign-in"), data=given)
        assert page.url == f"{shared_host}/ui/models"
        [session] = [one for one in client.cookies.jar if one.name == COOKIE]
        assert session.path == f"{PREFIX}/ui"
        missing = client.get(f"{shared_host}/ui/there/is/none")
        assert missing.status_code == 404
        for text, found_at in ((form.text, form.url), (page.text, page.url), (missing.text, missing.url)):
            addresses = {urljoin(f"{found_at}", one) for one in ADDRESS.findall(text) if not one.startswith("data:")}
            assert addresses
            for one in addresses:
                assert one.startswith(f"{shared_host}/ui/"), one
                assert client.get(one).status_code in (200, 405), one


def test_every_page_stands_on_a_phone_without_barriers_and_asks_for_nothing_outside_the_path(
    chromium: webdriver.Chrome, running: Running, shared_host: str
) -> None:
    """Nor do they scroll sideways there, which is also a laptop's width at four times its size."""
    chromium.delete_all_cookies()
    drain(chromium)
    sign_in(chromium, shared_host, running.month.owner_key)
    chromium.set_script_timeout(120)
    wide: list[str] = []
    found: list[str] = []
    with on_a_phone(chromium) as width:
        for spec in PAGES:
            chromium.get(f"{shared_host}/ui{spec.path}")
            wait_for_page(chromium)
            wait_until_settled(chromium)
            if chromium.execute_script("return document.documentElement.scrollWidth") > width:
                wide.append(spec.path)
            found += axe.barriers(chromium) if axe.is_here() else []
    assert not wide
    assert not found
    _follow_links(chromium)
    _sliders_and_editor(chromium, shared_host)
    button(chromium, "Light / dark").click()
    patient(chromium).until(lambda browser: browser.get_cookie("breakeven_theme") is not None)
    theme = chromium.get_cookie("breakeven_theme")
    assert theme is not None
    assert theme["path"] == f"{PREFIX}/ui"
    chromium.execute_script("window.onbeforeunload = null")
    button(chromium, "Sign out").click()
    see(chromium, "API key")
    assert not foreign_requests(chromium, f"{shared_host}/")
    assert not console_errors(chromium)
    chromium.delete_all_cookies()
    if not axe.is_here():
        pytest.skip(f"{axe.MISSING}; all else was looked at")


def _follow_links(browser: webdriver.Chrome) -> None:
    """From a total to one request, and through the navigation."""
    for label in ("Explorer", "Keys", "Overview", "Budgets", "Requests"):
        browser.find_element(By.LINK_TEXT, label).click()
        wait_for_page(browser)
        assert browser.find_element(By.TAG_NAME, "h1").text == label
    browser.find_element(By.CSS_SELECTOR, "tbody tr a").click()
    see(browser, "The decision")


def _sliders_and_editor(browser: webdriver.Chrome, shared_host: str) -> None:
    """Their scripts are loaded on demand."""
    browser.get(f"{shared_host}/ui/break-even")
    wait_for_page(browser)
    handle = patient(browser).until(lambda one: one.find_element(By.CSS_SELECTOR, ".q-slider [aria-valuetext]"))
    handle.send_keys(Keys.ARROW_RIGHT)
    patient(browser).until(lambda one: "gpu_hour_usd=" in one.current_url)
    assert browser.current_url.startswith(f"{shared_host}/ui/break-even?")
    browser.get(f"{shared_host}/ui/rules")
    wait_for_page(browser)
    assert "min_quality" in suggested_after(browser, "choose: {")
