"""A small exam with exact answers, written for this project, and the ability that a model's marks imply. No IO."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from classifier.logits import sigmoid
from classifier.profiles import CurveBook, curve_for

_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")


@dataclass(frozen=True, slots=True)
class Question:
    """`kind` is how the answer is checked: `number` (the last one given), `word` (anywhere), `exact` (the whole
    answer)."""

    id: str
    kind: str
    answers: tuple[str, ...]
    prompt: str


def load_exam() -> list[Question]:
    """The bundled questions."""
    text = resources.files("classifier").joinpath("exam.tsv").read_text(encoding="utf-8")
    questions: list[Question] = []
    for number, line in enumerate(text.splitlines(), start=1):
        kind, answers, prompt = line.split("\t", 2)
        questions.append(Question(f"exam/{number}", kind, tuple(answers.split("|")), prompt.replace("\\n", "\n")))
    return questions


def grade(question: Question, answer: str) -> float:
    """1 for a right answer, else 0."""
    said = answer.strip()
    if question.kind == "number":
        numbers = [_as_number(found) for found in _NUMBER.findall(said)]
        return float(bool(numbers) and any(abs(numbers[-1] - float(right)) < 1e-6 for right in question.answers))
    if question.kind == "word":
        return float(
            any(re.search(rf"(?<!\w){re.escape(right)}(?!\w)", said, re.IGNORECASE) for right in question.answers)
        )
    if question.kind == "exact":
        return float(said.strip(" .`'\"\n").lower() in {right.lower() for right in question.answers})
    raise ValueError(f"{question.id} has the unknown kind {question.kind!r}")


def ability_from_marks(marks: Sequence[float], traits: Sequence[tuple[float, float]], book: CurveBook) -> float:
    """The ability whose curve expects these marks on these prompts, shrunk by two pseudo-marks; found by bisection."""
    got = (sum(marks) + 1.0) / (len(marks) + 2.0)
    low, high = 0.005, 0.98
    for _ in range(30):
        ability = (low + high) / 2.0
        low, high = (ability, high) if _expected(ability, traits, book) < got else (low, ability)
    return (low + high) / 2.0


def _expected(ability: float, traits: Sequence[tuple[float, float]], book: CurveBook) -> float:
    curve = curve_for(ability, 0.0, "", book)
    logits = [curve.offset - curve.slopes[0] * one - curve.slopes[1] * two for one, two in traits]
    return sum(sigmoid(one) for one in logits) / len(logits)


def _as_number(text: str) -> float:
    """1,234.5 equals 1234.5; a lone comma not followed by exactly three digits is a decimal point."""
    if "," in text and "." not in text and not re.fullmatch(r"-?\d{1,3}(?:,\d{3})+", text):
        text = text.replace(",", ".", 1)
    return float(text.replace(",", "").rstrip(".") if text.count(".") < 2 else "nan")
