"""Where a browser asking for the web UI is redirected: from this machine, from elsewhere, through a proxy."""

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from gateway.api.way_to_web_ui import build_way_to_web_ui, is_this_machine

UI = "http://127.0.0.1:8081/ui"


def browser(public_url: str | None = None) -> TestClient:
    app = FastAPI()
    app.include_router(build_way_to_web_ui(UI, public_url))
    return TestClient(app, follow_redirects=False)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:8080", True), ("localhost", True), ("LOCALHOST:8080", True), ("[::1]:8080", True),
        ("127.0.0.1.evil.example", False), ("gpu-box:8080", False), ("10.0.0.7:8080", False), ("", False),
        ("[::1", False),
    ],
)  # fmt: skip
def test_who_sits_at_this_machine(host: str, expected: bool) -> None:
    assert is_this_machine(host) is expected


@pytest.mark.parametrize("path", ["/", "/ui"])
def test_at_this_machine_both_lead_to_the_web_ui(path: str) -> None:
    asked = browser("https://llm.example").get(path, headers={"host": "127.0.0.1:8080"})
    assert (asked.status_code, asked.headers["location"]) == (307, UI)


def test_elsewhere_nobody_is_sent_to_an_address_of_their_own_machine() -> None:
    first = browser().get("/", headers={"host": "gpu-box:8080"})
    assert first.headers["location"] == "ui/", "which a proxy may send to the web UI, under whatever path"
    then = browser().get("/ui", headers={"host": "gpu-box:8080"})
    assert then.status_code == 404
    assert "ssh -L 8081:127.0.0.1:8081" in then.text


def test_elsewhere_the_address_that_people_use_is_known_where_it_was_said() -> None:
    for path in ("/", "/ui"):
        asked = browser("https://llm.example/").get(path, headers={"host": "gpu-box:8080"})
        assert asked.headers["location"] == "https://llm.example/ui/"
