"""Files of prompts: which lines are rejected, what is tolerated, and what a rejection leaves behind."""

import io
import json
import os
import sys
from pathlib import Path

import pytest

from classifier.batch import classify_file
from classifier.item_response import ItemResponseClassifier
from classifier.load import load_artefact
from classifier.prompt_lines import STANDARD, PromptFileError


@pytest.fixture(scope="module")
def classifier() -> ItemResponseClassifier:
    return load_artefact()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"id": 2}', r"in\.jsonl:3 needs a `prompt` string"),
        (b'{"id": 2, "prompt": 5}', r"in\.jsonl:3 needs a `prompt` string"),
        (b"[]", r"in\.jsonl:3 needs a `prompt` string"),
        (b"{oops", r"in\.jsonl:3 is not JSON"),
        (b'{"prompt": "nul \x00"}', r"in\.jsonl:3 is not JSON"),
        (b'{"prompt": "a", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", r"in\.jsonl:3 is not JSON"),
        (b'{"prompt": "caf\xe9"}', r"in\.jsonl:3 is not UTF-8 \(byte 15\): save the file as UTF-8"),
    ],
)
def test_a_bad_line_is_named_and_leaves_what_was_there(
    classifier: ItemResponseClassifier, tmp_path: Path, line: bytes, message: str
) -> None:
    (tmp_path / "in.jsonl").write_bytes(b'{"id": 1, "prompt": "hi"}\n\n' + line + b"\n")
    (tmp_path / "out.jsonl").write_text("from last week\n")
    with pytest.raises(PromptFileError, match=message):
        classify_file(tmp_path / "in.jsonl", tmp_path / "out.jsonl", classifier)
    assert (tmp_path / "out.jsonl").read_text() == "from last week\n"
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "out.jsonl"}


def test_whatever_is_a_prompt_is_answered_in_order(classifier: ItemResponseClassifier, tmp_path: Path) -> None:
    prompts = ["", " \n", "\ud800 alone", "nul \x00", "word " * 200_000, "two\u2028lines", "ünï 你好"]
    lines = [json.dumps({"id": number, "prompt": prompt}) for number, prompt in enumerate(prompts)]
    (tmp_path / "in.jsonl").write_bytes(b"\xef\xbb\xbf" + "\r\n \n".join(lines).encode())
    assert classify_file(tmp_path / "in.jsonl", tmp_path / "out.jsonl", classifier) == len(prompts)
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in found] == list(range(len(prompts)))
    assert all(0.0 < row["difficulty"] < 1.0 for row in found)


def test_no_prompts_give_an_empty_file(classifier: ItemResponseClassifier, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("")
    assert classify_file(tmp_path / "in.jsonl", tmp_path / "out.jsonl", classifier) == 0
    assert (tmp_path / "out.jsonl").read_text() == ""


def test_a_file_may_be_answered_in_place(classifier: ItemResponseClassifier, tmp_path: Path) -> None:
    (tmp_path / "both.jsonl").write_text('{"id": 1, "prompt": "hi"}\n')
    assert classify_file(tmp_path / "both.jsonl", tmp_path / "both.jsonl", classifier) == 1
    assert json.loads((tmp_path / "both.jsonl").read_text())["id"] == 1


def test_devices_are_written_to_as_they_are(classifier: ItemResponseClassifier, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": 1, "prompt": "hi"}\n')
    assert classify_file(tmp_path / "in.jsonl", Path("/dev/null"), classifier) == 1
    assert not Path("/dev/null").is_file()


def test_a_pipe_by_its_name_is_written_to(classifier: ItemResponseClassifier, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": 1, "prompt": "hi"}\n')
    reading, writing = os.pipe()
    with open(reading, "rb") as pipe:
        assert classify_file(tmp_path / "in.jsonl", Path(f"/proc/self/fd/{writing}"), classifier) == 1
        os.close(writing)
        assert json.loads(pipe.read())["id"] == 1


def test_standard_input_and_output_are_a_dash(
    classifier: ItemResponseClassifier, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = b'{"id": 1, "prompt": "hi"}\n{"id": 2}\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    with pytest.raises(PromptFileError, match="standard input:2 needs a `prompt` string"):
        classify_file(STANDARD, STANDARD, classifier)
    assert json.loads(capsys.readouterr().out)["id"] == 1
    assert not Path("-").exists()
