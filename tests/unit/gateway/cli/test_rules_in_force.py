"""What is said about a running gateway after an activation of rules, from its metrics."""

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from gateway.cli.rules_in_force import how_it_was_taken
from gateway.telemetry.rules_in_force import RULES, RulesInForce

URL = "http://127.0.0.1:1"


class Worker:
    def __init__(self, applied: str | None, refused: str | None = None) -> None:
        self.applied = applied
        self.refused = refused


def shown(*workers: Worker) -> list[Sample]:
    """The samples of `/metrics`."""
    texts: list[bytes] = []
    for worker in workers:
        registry = CollectorRegistry()
        registry.register(RulesInForce(worker))
        texts.append(generate_latest(registry))
    return [
        one
        for text in texts
        for family in text_string_to_metric_families(text.decode())
        for one in family.samples
        if one.name == RULES
    ]


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ([Worker("new")], "decides by them"),
        ([Worker("new"), Worker("new")], "decides by them"),
        ([Worker("old", refused="new")], "does NOT decide by them: it keeps old"),
        ([Worker("new"), Worker("old", refused="new")], "does NOT decide by them: it keeps old"),
        ([Worker(None, refused="new")], "it keeps no rules yet"),
        ([Worker("old")], "not taken them over yet and decides by old"),
        ([Worker("old", refused="another")], "not taken them over yet and decides by old"),
        ([], "decides by no rules yet"),
    ],
)
def test_what_the_workers_decide_by_is_said_in_a_sentence(workers: list[Worker], said: str) -> None:
    assert said in how_it_was_taken(URL, "new", look=lambda url, name: shown(*workers), patience=0)


def test_it_waits_for_all_of_them() -> None:
    looks = iter([[Worker("old"), Worker("old")], [Worker("new"), Worker("old")], [Worker("new"), Worker("new")]])
    assert "decides by them" in how_it_was_taken(URL, "new", look=lambda url, name: shown(*next(looks)))


def test_without_a_gateway_they_wait_for_its_start() -> None:
    def nobody(url: str, name: str) -> list[Sample]:
        raise httpx.ConnectError("refused")

    assert "when it is started" in how_it_was_taken(URL, "new", look=nobody)
