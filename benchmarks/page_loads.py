"""First paint, first figures, charts drawn and weight of each page of a running web UI (`--url`, `--key`).

In a real Chromium, one cold and several warm loads of each page; prints one JSON object.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from dashboards.pages import PAGES as SPECS
from tests.browser.pictures import PAGES, open_browser, sign_in

WARM_LOADS = 3
LONGEST_SECONDS = 120
WITH_PERIOD = {spec.path for spec in SPECS if spec.has_period}
WATCH = """(() => {
  const seen = window.beSeen = {};
  const look = () => {
    const main = '.be-main .be-panel, .be-main .be-tile, .be-main .be-message';
    if (!('figures' in seen) && document.querySelector(main)) seen.figures = performance.now();
    const charts = [...document.querySelectorAll('.be-chart')];
    if (!('charts' in seen) && 'figures' in seen && document.readyState === 'complete'
      && charts.every((one) => one.querySelector('canvas'))) seen.charts = performance.now();
  };
  new MutationObserver(look).observe(document, {childList: true, subtree: true});
  addEventListener('load', look);
})()"""
SEEN = """const paint = performance.getEntriesByName('first-contentful-paint')[0]?.startTime;
return window.beSeen?.charts && paint ? {...window.beSeen, paint} : null"""


def load(browser: webdriver.Chrome, url: str) -> dict[str, float]:
    """One load of one page; times are seconds since its navigation began."""
    browser.get_log("performance")
    browser.get(url)
    seen: dict[str, float] = WebDriverWait(browser, LONGEST_SECONDS).until(lambda one: one.execute_script(SEEN))
    received = 0
    for record in browser.get_log("performance"):
        event: dict[str, Any] = json.loads(record["message"])["message"]
        if event["method"] == "Network.loadingFinished":
            received += round(event["params"]["encodedDataLength"])
    return {
        "first_paint_seconds": round(seen["paint"] / 1000, 3),
        "figures_seconds": round(seen["figures"] / 1000, 3),
        "charts_seconds": round(seen["charts"] / 1000, 3),
        "received_kilobytes": round(received / 1000, 1),
    }


def measure(url: str, key: str, period: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Every page: its first load with an empty cache, and the median of warm ones. `period` is since and until."""
    results: dict[str, Any] = {}
    for name, path in PAGES.items():
        address = f"{url}/ui{path}"
        if period and path.partition("?")[0] in WITH_PERIOD:
            address += ("&" if "?" in path else "?") + urlencode(period)
        with tempfile.TemporaryDirectory() as profile:
            browser = open_browser(profile=profile)
            try:
                sign_in(browser, url, key)
                browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
                browser.execute_cdp_cmd("Network.clearBrowserCache", {})
                cold = load(browser, address)
                warm = [load(browser, address) for _ in range(WARM_LOADS)]
            finally:
                browser.quit()
        medians = {field: statistics.median(one[field] for one in warm) for field in cold}
        results[name] = {"cold": cold, "warm": medians}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page_loads", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8081")
    parser.add_argument("--key", required=True)
    asked = parser.parse_args()
    print(json.dumps(measure(asked.url, asked.key), indent=1))


if __name__ == "__main__":
    main()
