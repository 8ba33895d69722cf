"""The clients for Node, which run under Node's own test runner against the same gateway."""

import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from running_gateway import Gateway

FOLDER = Path(__file__).resolve().parents[1] / "node"


@pytest.mark.skipif(shutil.which("node") is None, reason="the Node clients need node 20 or newer on PATH")
@pytest.mark.parametrize("suite", ["openai.test.mjs", "ai-sdk.test.mjs", "google-genai.test.mjs"])
def test_node(gateway: Gateway, suite: str) -> None:
    environment = {**os.environ, "BREAKEVEN_CLIENTS_GATEWAY": json.dumps(dataclasses.asdict(gateway))}
    done = subprocess.run(["node", "--test", suite], cwd=FOLDER, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
