"""`python -m tests.browser.pictures --url http://127.0.0.1:8081 --key bk-... --out DIR`: a picture of every page.

Light and dark at laptop width, light at phone width too. `make screenshots` sets up a demonstration for it first. Needs
Debian's chromium and chromium-driver, selenium and Pillow.
"""

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

PAGES = {
    "overview": "/",
    "explorer": "/explorer?by=team&then=model",
    "break-even": "/break-even",
    "utilisation": "/utilisation?period=7d",
    "budgets": "/budgets",
    "requests": "/requests",
    "request": "/requests?status=completed",
    "batches": "/batches",
    "rules": "/rules",
    "rules-form": "/rules?view=form",
    "models": "/models",
    "backends": "/backends",
    "keys": "/keys",
    "try": "/try",
    "audit": "/audit",
}
THEMES = ("light", "dark")
LAPTOP, PHONE = (1280, 860), (390, 844)
TALLEST = 2400
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
PATIENCE_SECONDS = 120
READY = """return document.readyState === 'complete' && window.did_handshake === true
  && document.querySelector('.be-main') !== null && document.querySelector('.be-building') === null
  && [...document.querySelectorAll('.be-chart')].every((one) => one.querySelector('canvas') !== null)"""


def open_browser(*, profile: str) -> webdriver.Chrome:
    """Headless Chromium that contacts nobody but the pages it opens. Raises FileNotFoundError if it is not
    installed."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        raise FileNotFoundError("no chromium and chromedriver; on Debian: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={LAPTOP[0]},{LAPTOP[1]}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


def sign_in(browser: webdriver.Chrome, url: str, key: str) -> None:
    """Sign in through the form, as a person does."""
    browser.get(f"{url}/ui/sign-in")
    browser.find_element(By.ID, "key").send_keys(key)
    browser.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
    wait_for_page(browser)


def wait_for_page(browser: webdriver.Chrome) -> None:
    """Wait until the page is built, every chart is drawn, and typed text reaches the server."""
    WebDriverWait(browser, PATIENCE_SECONDS).until(lambda one: one.execute_script(READY))


def wait_until_settled(browser: webdriver.Chrome) -> None:
    """Wait until nothing is being computed for the page any more, and an editor on it has its name and suggestions."""
    unsettled = ".be-pending, .be-editor:not([data-completes])"
    WebDriverWait(browser, PATIENCE_SECONDS).until(lambda one: not one.find_elements(By.CSS_SELECTOR, unsettled))


def picture(browser: webdriver.Chrome, size: tuple[int, int], file: Path) -> None:
    """A picture of the whole page at this width, up to a maximum height."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_async_script("setTimeout(arguments[0], 150)")
    height = int(browser.execute_script("return document.documentElement.scrollHeight"))
    metrics["height"] = min(TALLEST, max(size[1], height))
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_async_script("setTimeout(arguments[0], 400)")  # charts adapt to the new size
    browser.save_screenshot(str(file))
    _shrink(file)


def _shrink(file: Path) -> None:
    """Save with at most 256 colours: half of the bytes, and the flat colours look the same."""
    with Image.open(file) as opened:
        small = opened.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(file, optimize=True)


def take_all(
    browser: webdriver.Chrome, url: str, directory: Path, *, themes: Sequence[str] = THEMES, name: str = "ui"
) -> list[Path]:
    """Every page in these themes, and in the first one at phone width. The browser must be signed in."""
    written: list[Path] = []
    for theme in themes:
        browser.add_cookie({"name": "breakeven_theme", "value": theme, "path": "/ui"})
        for page, path in PAGES.items():
            browser.get(f"{url}/ui{path}")
            wait_for_page(browser)
            wait_until_settled(browser)
            if page == "request" and not open_first_request(browser):
                continue
            if page == "keys":
                open_a_key(browser)
            for suffix, size in {"": LAPTOP, "-phone": PHONE}.items():
                if not suffix or theme == THEMES[0]:
                    written.append(directory / f"{name}-{page}-{theme}{suffix}.png")
                    picture(browser, size, written[-1])
    return written


def open_first_request(browser: webdriver.Chrome) -> bool:
    """Open one request from the list; False if the list is empty."""
    links = browser.find_elements(By.CSS_SELECTOR, "tbody tr a")
    if not links:
        return False
    browser.get(links[0].get_attribute("href") or "")
    wait_for_page(browser)
    return True


def open_a_key(browser: webdriver.Chrome) -> None:
    """Open the form that changes a key, for the middle one."""
    browser.find_element(By.CSS_SELECTOR, "input[aria-label='Key']").click()
    wait = WebDriverWait(browser, PATIENCE_SECONDS)
    offered = wait.until(lambda one: one.find_elements(By.CSS_SELECTOR, ".q-menu .q-item"))
    offered[len(offered) // 2].click()
    wait.until(lambda one: any(found.is_displayed() for found in one.find_elements(By.XPATH, "//button[.='Save']")))
    browser.execute_script("window.scrollTo(0, 0)")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.browser.pictures", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8081")
    parser.add_argument("--key", required=True)
    parser.add_argument("--out", type=Path, default=Path("screenshots"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        browser = open_browser(profile=profile)
        try:
            sign_in(browser, asked.url, asked.key)
            for path in take_all(browser, asked.url, asked.out):
                print(path)
        finally:
            browser.quit()


if __name__ == "__main__":
    main()
