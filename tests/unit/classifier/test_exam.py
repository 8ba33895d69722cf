"""The bundled exam grades as described, and better marks give higher abilities."""

import pytest

from classifier.exam import Question, ability_from_marks, grade, load_exam
from classifier.load import load_artefact

EXAM = load_exam()
CLASSIFIER = load_artefact()
TRAITS = [CLASSIFIER.traits_of(question.prompt) for question in EXAM]


def test_there_are_enough_distinct_questions() -> None:
    assert len({question.prompt for question in EXAM}) == len(EXAM) >= 60


@pytest.mark.parametrize("question", EXAM, ids=lambda question: question.id)
def test_the_key_is_right_by_its_own_grader_and_silence_is_wrong(question: Question) -> None:
    assert grade(question, question.answers[0]) == 1.0
    assert grade(question, "") == 0.0
    assert grade(question, "I am not sure about that.") == 0.0


@pytest.mark.parametrize(
    ("kind", "key", "answer", "mark"),
    [
        ("number", "56", "7 times 8 is 56.", 1.0),
        ("number", "1234", "It is 1,234", 1.0),
        ("number", "4", "4 or 5", 0.0),
        ("number", "2.5", "2,5", 1.0),
        ("word", "Paris", "It's paris!", 1.0),
        ("word", "Au", "Aurum", 0.0),
        ("exact", "banana", "Banana.", 1.0),
        ("exact", "banana", "Sure: banana", 0.0),
    ],
)
def test_grading(kind: str, key: str, answer: str, mark: float) -> None:
    assert grade(Question("x", kind, (key,), "?"), answer) == mark


def test_more_right_answers_are_more_ability() -> None:
    size = len(EXAM)
    abilities = [
        ability_from_marks([1.0] * right + [0.0] * (size - right), TRAITS, CLASSIFIER.book)
        for right in (0, size // 4, size // 2, size)
    ]
    assert abilities == sorted(abilities)
    assert abilities[0] < 0.05
    assert abilities[-1] > 0.8


def test_an_unknown_kind_is_a_bug_that_is_told() -> None:
    with pytest.raises(ValueError, match="unknown kind 'riddle'"):
        grade(Question("x", "riddle", ("a",), "?"), "a")
