"""The shipped artefact: a result for every text, sensible orders, versions determined by content."""

import math
import threading
from pathlib import Path

import pytest

from classifier.item_response import ItemResponseClassifier
from classifier.load import load_artefact
from classifier.protocol import Classification, Conversation, ModelProfile

NAMES = ("gpt-5.4-mini", "gpt-4o-mini", "mixtral-8x7b-instruct-v0.1", "smollm2-135m-instruct")
SHIPPED = load_artefact()
BOUND = SHIPPED.bind([ModelProfile(name) for name in NAMES])

GREETINGS = (Path(__file__).parent / "greetings.txt").read_text(encoding="utf-8").splitlines()


def classify(text: str, classifier: ItemResponseClassifier = BOUND) -> Classification:
    return classifier.classify(Conversation(text))


def check(answer: Classification) -> None:
    assert 0.0 <= answer.difficulty <= 1.0
    assert 0.0 <= answer.uncertainty <= 1.0
    assert tuple(answer.quality) == NAMES
    assert tuple(answer.output_tokens) == NAMES
    for quality in answer.quality.values():
        assert 0.0 <= quality.mean <= 1.0
        assert 0.0 <= quality.deviation <= 0.5
    assert all(0.0 < tokens < 1e5 and math.isfinite(tokens) for tokens in answer.output_tokens.values())


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n\t",
        "\x00",
        "\x00" * 1000,
        "\ud800",
        "a\udfffb",
        "\u202e\u200f",
        "😀" * 50,
        "x" * 10_000_000,
        "{" * 5000,
        "\\" * 100_000,
        "1" * 100_000,
        "é" * 100_000,
        "```" * 9999,
        "A. \n" * 9999,
        "\uffff",
        "ﷺ" * 2000,
    ],
    ids=lambda text: repr(text[:8]) + str(len(text)),
)
def test_any_text_gets_an_answer(text: str) -> None:
    check(classify(text))


@pytest.mark.parametrize("greeting", GREETINGS)
def test_a_greeting_in_any_language_is_easier_than_the_usual_prompt(greeting: str) -> None:
    answer = classify(greeting)
    check(answer)
    assert answer.difficulty < 0.45


def test_there_are_two_hundred_greetings() -> None:
    assert len(set(GREETINGS)) >= 200


def test_nothing_to_read_is_unknown() -> None:
    for text in ("", "  \n", "\x00", "\ud800", "?!"):
        assert classify(text).uncertainty == 1.0
    assert BOUND.classify(Conversation("", image_count=2)).uncertainty == 1.0


@pytest.mark.parametrize(
    ("easy", "hard"),
    [
        ("Hi there!", "Prove that every finite integral domain is a field."),
        ("Write a short poem about rain.", "Find the number of integer solutions of x^2 + 7y^2 = 1848 with x > y > 0."),
        (
            "What colour is grass?",
            "A reactor cools from 90 K to 40 K in 300 s while losing 5% of its mass. Derive the rate.",
        ),
    ],
)
def test_difficulty_and_quality_order(easy: str, hard: str) -> None:
    low, high = classify(easy), classify(hard)
    assert low.difficulty < high.difficulty
    for name in NAMES:
        assert low.quality[name].mean > high.quality[name].mean
    assert [q.mean for q in high.quality.values()] == sorted((q.mean for q in high.quality.values()), reverse=True)


def test_images_tools_and_long_context_make_it_less_sure_or_harder() -> None:
    plain = classify("What is in this picture?")
    image = BOUND.classify(Conversation("What is in this picture?", image_count=1))
    tools = BOUND.classify(Conversation("What is in this picture?", tool_count=3, wants_json=True))
    long = BOUND.classify(Conversation("What is in this picture?", system="s" * 40_000))
    assert image.uncertainty > plain.uncertainty
    assert long.uncertainty > plain.uncertainty
    assert tools.difficulty > plain.difficulty


def test_a_short_follow_up_is_read_with_what_it_follows() -> None:
    hard = "Prove that the integral of e^{-x^2} over the reals is the square root of pi, using polar coordinates."
    alone, after = classify("go on"), BOUND.classify(Conversation("go on", earlier=["hello", hard]))
    assert after.difficulty > alone.difficulty


def test_a_gadget_cannot_move_a_score_without_bound() -> None:
    assert classify("prove theorem lemma derive " * 10_000).difficulty < 0.95


def test_versions_follow_the_catalogue() -> None:
    again = load_artefact().bind([ModelProfile(name) for name in NAMES])
    assert again.version == BOUND.version != SHIPPED.version
    assert SHIPPED.bind([ModelProfile("gpt-4o", ability=0.7)]).version != SHIPPED.bind([ModelProfile("gpt-4o")]).version


def test_threads_share_one_classifier() -> None:
    texts = [f"question number {number} about sheep and prices" for number in range(50)]
    expected = [classify(text) for text in texts]
    seen: list[list[Classification]] = []
    threads = [threading.Thread(target=lambda: seen.append([classify(text) for text in texts])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [expected] * 4
