"""schemathesis with a running gateway's OpenAPI document: no 5xx, and every answer conforms to the document.

`BREAKEVEN_API_EXAMPLES=200` tries more examples per operation than the few of an ordinary run.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]
EXAMPLES = os.environ.get("BREAKEVEN_API_EXAMPLES")
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
MODELS = ("chat/completions", "completions", "embeddings", "responses", "messages")


@dataclass(frozen=True, slots=True)
class Published:
    """The document of a running gateway, in a file, with the names of existing models inserted."""

    file: Path
    url: str
    owner_key: str
    paths: dict[str, Any]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    command = [sys.executable, "-m", "tests.clients.service"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        line = service.stdout.readline()
        assert line, "the gateway did not start; what it says is above"
        running = json.loads(line)
        document = httpx.get(f"{running['url']}/openapi.json", timeout=60).json()
        for schema in document["components"]["schemas"].values():
            if "/v1/models" in str(schema.get("properties", {}).get("model")):
                schema["properties"]["model"]["enum"] = ["auto", running["model"]]
        for path, operations in document["paths"].items():
            if path.startswith("/v1beta/"):
                named = next(one for one in operations["post"]["parameters"] if one["name"] == "model")
                named["schema"] = {"enum": ["auto", running["model"]]}
        file = tmp_path_factory.mktemp("openapi") / "openapi.json"
        file.write_text(json.dumps(document))
        yield Published(file, running["url"], running["owner_key"], document["paths"])
        assert service.stdin is not None
        service.stdin.close()
        service.wait(300)


def ask(published: Published, *options: str) -> None:
    """Runs schemathesis; its findings are the failure's text."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", str(published.file), "--url", published.url]
    shared = ["-H", f"Authorization: Bearer {published.owner_key}", "--checks", ",".join(CHECKS)]
    steady = ["--generation-deterministic", "--no-color", "--request-timeout", "300"]
    done = subprocess.run([*command, *shared, *steady, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout, done.stdout


def test_the_model_endpoints_are_in_the_document(published: Published) -> None:
    for name in MODELS:
        operation = published.paths[f"/v1/{name}"]["post"]
        assert "$ref" in operation["requestBody"]["content"]["application/json"]["schema"]
        assert "$ref" in operation["responses"]["200"]["content"]["application/json"]["schema"]


def test_what_the_model_endpoints_answer_is_what_the_document_says(published: Published) -> None:
    ask(
        published,
        "--include-path-regex",
        "^/v1(beta)?/",
        "--phases",
        "coverage,fuzzing",
        "--max-examples",
        EXAMPLES or "5",
    )


def test_what_the_other_endpoints_answer_is_what_the_document_says(published: Published) -> None:
    phases = "coverage,fuzzing" if EXAMPLES else "fuzzing"
    ask(published, "--exclude-path-regex", "^/v1(beta)?/", "--phases", phases, "--max-examples", EXAMPLES or "1")
