"""A home whose backend is a provider of this machine, and `breakeven serve` in it."""

import os
import sys
from pathlib import Path

CONFIGURATION = """\
engine: {{is_enabled: false}}
simulated_hosted: never
backends:
  provider: {{base_url: "{provider}", provider: openai}}
"""
RULES = """\
version: 1
models:
  plain: {backend: provider, upstream_model: plain, priced_as: openai/gpt-5.4-mini, context_window: 200000}
rules:
  - name: all
    choose: {from: [plain], by: order}
"""


def write_home(home: Path, provider: str) -> Path:
    (home / "rules.yaml").write_text(RULES, "utf-8")
    (home / "breakeven.yaml").write_text(CONFIGURATION.format(provider=provider), "utf-8")
    return home


def command_of(port: int) -> list[str]:
    return [sys.executable, "-m", "gateway", "serve", "--port", str(port), "--no-ui"]


def environment_of(home: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return {**clean, "BREAKEVEN_HOME": str(home), "PYTHONUNBUFFERED": "1"}
