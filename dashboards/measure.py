"""`python -m dashboards.measure --url ... --key ...`: first paint, time until every chart is drawn, and page weight.

In a real Chromium, one cold and several warm loads of each page; prints one JSON object. Times are of this machine.
"""

import argparse
import json
import statistics
import tempfile
import time
from typing import Any

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from dashboards.screenshots import PAGES, open_browser, sign_in, wait_for_page

WARM_LOADS = 3
PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


def load(browser: webdriver.Chrome, url: str) -> dict[str, float]:
    """One load of one page."""
    browser.get_log("performance")  # pyright: ignore[reportUnknownMemberType]
    began = time.monotonic()
    browser.get(url)
    wait_for_page(browser)
    charts_seconds = time.monotonic() - began
    paint = WebDriverWait(browser, 10).until(lambda one: one.execute_script(PAINT))
    received = 0
    for record in browser.get_log("performance"):  # pyright: ignore[reportUnknownMemberType]
        event: dict[str, Any] = json.loads(record["message"])["message"]
        if event["method"] == "Network.loadingFinished":
            received += round(event["params"]["encodedDataLength"])
    return {
        "first_paint_seconds": round(paint / 1000, 3),
        "charts_seconds": round(charts_seconds, 3),
        "received_kilobytes": round(received / 1000, 1),
    }


def measure(url: str, key: str) -> dict[str, Any]:
    """Every page: its first load with an empty cache, and the median of warm ones."""
    results: dict[str, Any] = {}
    for name, path in PAGES.items():
        with tempfile.TemporaryDirectory() as profile:
            browser = open_browser(profile=profile)
            try:
                sign_in(browser, url, key)
                browser.execute_cdp_cmd("Network.clearBrowserCache", {})
                cold = load(browser, f"{url}/ui{path}")
                warm = [load(browser, f"{url}/ui{path}") for _ in range(WARM_LOADS)]
            finally:
                browser.quit()
        medians = {field: statistics.median(one[field] for one in warm) for field in cold}
        results[name] = {"cold": cold, "warm": medians}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dashboards.measure", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8081")
    parser.add_argument("--key", required=True)
    asked = parser.parse_args()
    print(json.dumps(measure(asked.url, asked.key), indent=1))


if __name__ == "__main__":
    main()
