import errno
import sys
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import build, main


@pytest.mark.parametrize("command", ["costs", "doctor", "check", "keys list"])
def test_a_home_that_is_not_ours_to_read_is_a_sentence(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as the home of the service's user. Here it is a file, because root may read every directory."""
    (home := tmp_path / "home").write_text("a file")
    monkeypatch.setenv("BREAKEVEN_HOME", str(home))
    monkeypatch.setattr(sys, "argv", ["breakeven", *command.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert str(home) in "".join(capsys.readouterr())


def test_a_directory_that_is_gone_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here := tmp_path / "here").mkdir()
    monkeypatch.chdir(here)
    here.rmdir()
    monkeypatch.setattr(sys, "argv", ["breakeven", "from-litellm", "c.yaml", "--out", "o"])
    with pytest.raises(SystemExit):
        main()
    assert "the current directory was removed" in capsys.readouterr().err


def test_temporary_files_without_a_folder_are_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a full disk one was told that the current directory was removed."""

    def gettempdir() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp', '/var/tmp']")

    (tmp_path / "c.yaml").write_text("model_list: [{model_name: m, litellm_params: {model: openai/m}}]\n")
    monkeypatch.setattr(tempfile, "gettempdir", gettempdir)
    monkeypatch.setattr(sys, "argv", ["breakeven", "from-litellm", str(tmp_path / "c.yaml"), "--out", f"{tmp_path}/o"])
    with pytest.raises(SystemExit):
        main()
    said = "breakeven: No usable temporary directory found in ['/tmp', '/var/tmp']: make room in one, or set TMPDIR"
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:99999", "nope"])
@pytest.mark.parametrize("command", ["bench engine", "demo prompts.jsonl", "evaluate --model m"])
def test_an_address_that_cannot_be_is_refused(command: str, url: str) -> None:
    words = command.split()
    result = CliRunner().invoke(build(words[0]), [*words, "--url", url])
    assert result.exit_code == 2
    assert "Invalid value for '--url'" in result.output


def test_output_that_finds_no_room_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`breakeven export focus > file` on a full disk ended in a traceback."""
    monkeypatch.setattr(sys, "argv", ["breakeven", "rules", "schema"])
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "breakeven: cannot write the output: No space left on device\n"


def test_a_terminal_without_a_letter_shows_its_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A price, a name or a path with one ended in a traceback."""
    monkeypatch.setattr(sys, "argv", ["breakeven", "from-litellm", str(tmp_path / "c.yaml"), "--out", f"{tmp_path}/é"])
    (tmp_path / "c.yaml").write_text("model_list: [{model_name: m, litellm_params: {model: openai/m}}]\n")
    with (tmp_path / "said").open("w", encoding="ascii") as said:
        monkeypatch.setattr(sys, "stdout", said)
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0
    assert f"{tmp_path}/\\xe9/breakeven.yaml" in (tmp_path / "said").read_text("ascii")


def test_the_help_of_a_command_says_more_than_the_list_of_commands() -> None:
    result = CliRunner().invoke(build("verify"), ["verify", "--help"], env={"COLUMNS": "200"})
    assert "Exits with status 1" in result.stdout
    result = CliRunner().invoke(build("keys"), ["keys", "--help"])
    assert "A secret is shown once" in result.stdout
