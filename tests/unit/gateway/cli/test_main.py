import sys
from pathlib import Path

import pytest

from gateway.cli import main


@pytest.mark.parametrize("command", ["costs", "doctor", "check", "keys list"])
def test_a_home_that_is_not_ours_to_read_is_a_sentence(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as that of the service's own user; here a file, since to root every directory is open."""
    (home := tmp_path / "home").write_text("a file")
    monkeypatch.setenv("BREAKEVEN_HOME", str(home))
    monkeypatch.setattr(sys, "argv", ["breakeven", *command.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert str(home) in "".join(capsys.readouterr())
