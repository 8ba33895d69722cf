"""What axe-core finds on the page that is shown: barriers for people who use a keyboard, a screen reader or zoom.

axe-core comes with the Node clients (`make test-clients` installs it). Charts are pictures to it.
"""

from pathlib import Path
from typing import Any

from selenium import webdriver

AXE = Path(__file__).resolve().parents[1] / "clients" / "node" / "node_modules" / "axe-core" / "axe.min.js"
MISSING = "axe-core comes with npm: make test-clients"
SHOWN = """const [options, done] = arguments;
const plain = document.createElement('style');
plain.textContent = '.be-scroll { background: none !important }'; // it cannot read the colours over a gradient
document.head.append(plain);
// Further rows are alike, and take time.
for (const row of document.querySelectorAll('tbody tr:nth-child(n+9)')) row.remove();
const asked = {resultTypes: ['violations'], ...options};
axe.run(document, asked).then(({violations}) => { plain.remove(); done(violations); });
"""
DARKER = """const root = document.documentElement, isDark = arguments[0];
root.classList.toggle('be-dark', isDark); root.classList.toggle('be-light', !isDark); Quasar.Dark.set(isDark);"""


def is_here() -> bool:
    return AXE.exists()


def barriers(browser: webdriver.Chrome, *, has_dark: bool = True) -> list[str]:
    """Findings, one per line: by all rules in the light theme, by the colour rules in the dark one."""
    browser.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE.read_text()})
    found = _ask(browser, {}, "light")
    if has_dark:
        browser.execute_script(DARKER, True)
        found += _ask(browser, {"runOnly": ["color-contrast"]}, "dark")
        browser.execute_script(DARKER, False)
    return found


def _ask(browser: webdriver.Chrome, options: dict[str, Any], theme: str) -> list[str]:
    violations = browser.execute_async_script(SHOWN, options)
    return [
        f"{browser.title}, {theme}, {one['impact']}: {one['help']}: {node['html'][:120]}"
        for one in violations
        for node in one["nodes"]
    ]
