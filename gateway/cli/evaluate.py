"""`breakeven evaluate`: asks a live OpenAI-compatible model the bundled exam; the marks give its ability."""

import json
import math
import os
import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.progress import track

from classifier.exam import Question, ability_from_marks, grade, load_exam
from classifier.load import load_artefact
from gateway.cli.options import AsJson, http_url
from gateway.errors import ConfigurationError, StateError
from gateway.whole_file import write_whole

TIMEOUT_SECONDS = 120.0
OWN_MACHINE = {"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None}
"""httpx's `mounts`: a provider may be behind the environment's proxy; this machine is not."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One graded answer."""

    question: Question
    mark: float
    answer: str
    output_tokens: int | None


def command(
    model: Annotated[str, typer.Option(help="The model's name at the endpoint.")],
    url: Annotated[str, typer.Option(callback=http_url, help="Base URL, such as http://127.0.0.1:8080/v1.")],
    key: Annotated[str, typer.Option(help="API key.", envvar="BREAKEVEN_EVALUATE_KEY")] = "",
    out: Annotated[Path | None, typer.Option(help="Where to write the profile; printed when not given.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 512,
    concurrency: Annotated[int, typer.Option(min=1, max=1000, help="Questions under way at once.")] = 4,
    as_json: AsJson = False,
) -> None:
    """Grade a live model on the bundled exam; costs one short answer per question."""
    if out and not os.access(out.parent, os.W_OK | os.X_OK):
        raise ConfigurationError(
            f"cannot write to {out.parent}: give --out in a writable folder; no question has been asked yet"
        )
    questions = load_exam()
    endpoint = url.rstrip("/") + "/chat/completions"
    # As bytes: a key with a letter beyond ASCII is for the endpoint to refuse.
    headers = {b"authorization": f"Bearer {key}".encode()} if key else {}
    with httpx.Client(timeout=TIMEOUT_SECONDS, headers=headers, mounts=OWN_MACHINE) as client:
        asked = _ask_all(client, endpoint, model, questions, max_tokens=max_tokens, concurrency=concurrency)
        marks = list(asked if as_json else track(asked, "Asking", total=len(questions)))
    profile = build_profile(model, marks)
    text = json.dumps(profile, indent=1, ensure_ascii=False)
    if out:
        _write(out, text)
    if as_json or not out:
        print(text)
    else:
        print(f"{model}: {profile['right']} of {profile['questions']} right, ability {profile['ability']}: {out}")


def _write(out: Path, text: str) -> None:
    """Raises StateError, after printing the profile: its answers are paid for."""
    try:
        write_whole(out, (text + "\n").encode())
    except OSError as error:
        print(text)
        raise StateError(f"cannot write {out}: {error.strerror}; the profile is printed instead") from error


def build_profile(model: str, marks: list[Mark]) -> dict[str, object]:
    """The ability on the classifier's reference scale, and the answers it was estimated from."""
    classifier = load_artefact()
    traits = [classifier.traits_of(mark.question.prompt) for mark in marks]
    right = sum(mark.mark for mark in marks)
    share = (right + 1) / (len(marks) + 2)
    lengths = [mark.output_tokens for mark in marks if mark.output_tokens is not None]
    return {
        "name": model,
        "ability": round(ability_from_marks([mark.mark for mark in marks], traits, classifier.book), 4),
        "questions": len(marks),
        "right": int(right),
        "standard_error_of_share": round(math.sqrt(share * (1 - share) / len(marks)), 4),
        "median_output_tokens": statistics.median(lengths) if lengths else None,
        "classifier_version": classifier.version,
        "marks": {mark.question.id: {"mark": mark.mark, "answer": mark.answer[:200]} for mark in marks},
    }


def _ask_all(
    client: httpx.Client, endpoint: str, model: str, questions: list[Question], *, max_tokens: int, concurrency: int
) -> Iterator[Mark]:
    def ask(question: Question) -> Mark:
        return _ask(client, endpoint, model, question, max_tokens)

    with ThreadPoolExecutor(max_workers=concurrency) as pool:
        yield from pool.map(ask, questions)


def _ask(client: httpx.Client, endpoint: str, model: str, question: Question, max_tokens: int) -> Mark:
    """Raises ConfigurationError when the endpoint does not answer properly: a failed call is not a wrong answer."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question.prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }
    try:
        response = client.post(endpoint, json=body)
        response.raise_for_status()
        found = response.json()
        answer = found["choices"][0]["message"]["content"] or ""
    except httpx.HTTPStatusError as error:
        raise ConfigurationError(
            f"{endpoint} answered {error.response.status_code}: {error.response.text[:300]}"
        ) from error
    except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ConfigurationError(f"{endpoint} gave no chat completion: {error}") from error
    usage = found.get("usage") or {}
    return Mark(question, grade(question, answer), answer, usage.get("completion_tokens"))
