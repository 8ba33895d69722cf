"""The commands end to end: `evaluate` with a live endpoint, `calibrate` with plots, `train` with invalid input."""

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from classifier.exam import load_exam
from classifier.seeds import load_seeds
from classifier.threshold import Cut
from gateway.cli import calibrate, classify, evaluate, train
from gateway.errors import ConfigurationError, StateError

KEY = {question.prompt: question.answers[0] for question in load_exam()}


class Model(BaseHTTPRequestHandler):
    """Knows every answer or none, depending on the requested model name."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if body["model"] == "broken":
            self.send_error(503)
            return
        answer = KEY[body["messages"][0]["content"]] if body["model"] == "clever" else "hmm"
        reply = json.dumps({"choices": [{"message": {"content": answer}}], "usage": {"completion_tokens": 3}}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the standard library's
        """Logs nothing into the test's output."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


def test_evaluate_tells_the_clever_from_the_clueless(url: str, tmp_path: Path) -> None:
    found = {}
    for model in ("clever", "clueless"):
        evaluate.command(model, url, key="k", out=tmp_path / model, as_json=True)
        found[model] = json.loads((tmp_path / model).read_text())
    assert found["clever"]["right"] == found["clever"]["questions"] == len(KEY)
    assert found["clueless"]["right"] == 0
    assert found["clever"]["ability"] > 0.8 > 0.05 > found["clueless"]["ability"]
    assert found["clever"]["median_output_tokens"] == 3


def test_a_failed_call_is_no_wrong_answer(url: str) -> None:
    with pytest.raises(ConfigurationError, match="answered 503"):
        evaluate.command("broken", url, key="sk-…", as_json=True)


def test_where_a_profile_cannot_go_is_told_before_answers_cost(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no question has been asked yet"):
        evaluate.command("broken", url, out=tmp_path / "missing" / "profile.json", as_json=True)


def test_a_profile_that_cannot_be_written_is_printed(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StateError, match="the profile is printed instead"):
        evaluate.command("clever", url, out=tmp_path / ("x" * 250), as_json=True)
    assert json.loads(capsys.readouterr().out)["right"] == len(KEY)


def write_labels(path: Path) -> None:
    rows = [
        {"id": str(number), "prompt": prompt, "scores": {"big": 1.0, "small": float(level < 0.3)}}
        for number, (level, prompt) in enumerate(load_seeds()[::5])
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_train_adapt_then_classify_then_calibrate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = tmp_path / "labels.jsonl"
    write_labels(labels)
    train.command(tmp_path / "artefact", adapt=labels)
    classify.command(labels, tmp_path / "out.jsonl", artefact=tmp_path / "artefact", pair=("big", "small"))
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {"id", "difficulty", "uncertainty", "quality", "deviation", "output_tokens", "route_score"} <= rows[0].keys()
    capsys.readouterr()
    calibrate.command(
        labels, ("big", "small"), artefact=tmp_path / "artefact", plots=tmp_path / "plots", json_output=True
    )
    report = json.loads(capsys.readouterr().out)
    assert report["kept_quality_low"] >= 0.95
    assert 0.0 < report["strong_share"] < 1.0
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"cost-quality.png", "reliability.png"}
    with pytest.raises(ConfigurationError, match=r"--plots .*labels\.jsonl: File exists"):
        calibrate.command(labels, ("big", "small"), artefact=tmp_path / "artefact", plots=labels)


@pytest.mark.parametrize("score", [0.34614, 0.34616, 0.5, 0.00001])
def test_a_threshold_holds_for_scores_as_the_gateway_rounds_them(score: float) -> None:
    """Exact, it left out the very prompts at the cut; rounded up, those that a file of scores has."""
    rounded = (score * 10_000 + 0.5) // 1.0 / 10_000
    some, none = (calibrate.in_four_decimals(Cut(score, share, 1.0, 1.0)) for share in (0.1, 0.0))
    assert some <= min(score, rounded) <= max(score, rounded) < none


def test_a_pair_is_two_models_and_one_without_labels_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels, out = tmp_path / "labels.jsonl", tmp_path / "out.jsonl"
    write_labels(labels)
    train.command(tmp_path / "artefact", adapt=labels)
    with pytest.raises(ConfigurationError, match="openai/big and big@azure are both big; name two models"):
        classify.command(labels, out, pair=("openai/big", "big@azure"))
    capsys.readouterr()
    classify.command(labels, out, artefact=tmp_path / "artefact", pair=("big", "smal"))
    assert "no labels of smal, but of big, small" in capsys.readouterr().out
    first = json.loads(out.read_text().splitlines()[0])
    assert first["route_score"] == first["difficulty"]


def test_calibrate_knows_a_model_by_any_spelling_and_says_which_are_graded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = tmp_path / "labels.jsonl"
    write_labels(labels)
    reports: list[str] = []
    for pair in (("big", "small"), ("openai/big", "SMALL@azure")):
        calibrate.command(labels, pair, json_output=True)
        reports.append(json.loads(capsys.readouterr().out)["strong_share"])
    assert reports[0] == reports[1]
    with pytest.raises(
        ConfigurationError, match=r"no prompt for both big and smal; it grades big \(\d+\), small \(\d+\)"
    ):
        calibrate.command(labels, ("big", "smal"))
    with pytest.raises(ConfigurationError, match="are both big; name two models"):
        calibrate.command(labels, ("big", "openai/big"))
    with pytest.raises(ConfigurationError, match=r"nowhere\.jsonl: No such file"):
        calibrate.command(tmp_path / "nowhere.jsonl", ("big", "small"))


@pytest.mark.parametrize("score", [8, "1", -0.5])
def test_calibrate_takes_nothing_for_a_score_that_is_none(tmp_path: Path, score: object) -> None:
    labels = tmp_path / "labels.jsonl"
    row = {"prompt": "why?", "scores": {"big": 1, "small": 0}}
    bad = {"prompt": "how?", "scores": {"big": score, "small": 0}}
    labels.write_text("".join(json.dumps(one) + "\n" for one in [row, {"prompt": "not graded"}, *[row] * 40, bad]))
    with pytest.raises(ConfigurationError, match=r"labels\.jsonl:43 has a score of .*between 0 and 1"):
        calibrate.command(labels, ("big", "small"))


def test_what_goes_to_a_pipe_is_json_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": 1, "prompt": "hi"}\n')
    reading, writing = os.pipe()
    with open(reading) as answers:
        try:
            classify.command(tmp_path / "in.jsonl", Path(f"/dev/fd/{writing}"))
        finally:
            os.close(writing)
        assert json.loads(answers.read())["id"] == 1
    told = capsys.readouterr()
    assert not told.out  # a command's pipe is its standard output
    assert "1 prompt classified" in told.err


def test_an_answer_file_that_cannot_be_written_is_named_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": 1, "prompt": "hi"}\n')
    with pytest.raises(ConfigurationError, match=r"missing/out\.jsonl: No such file or directory"):
        classify.command(tmp_path / "in.jsonl", tmp_path / "missing" / "out.jsonl")


def test_train_wants_one_kind_of_input(tmp_path: Path) -> None:
    for arguments in ({}, {"data": tmp_path, "adapt": tmp_path}):
        with pytest.raises(ConfigurationError, match="either --data"):
            train.command(tmp_path / "out", **arguments)
    with pytest.raises(ConfigurationError, match=r"holds no \.jsonl"):
        train.command(tmp_path / "out", data=tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        classify.command(tmp_path / "in", tmp_path / "out", artefact=tmp_path / "nowhere")
