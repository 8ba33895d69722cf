"""What a benchmark of graded prompts says of a folder that it cannot use."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import cascade, router, router_adaptation


@pytest.mark.parametrize("main", [cascade.main, router.main, router_adaptation.main])
def test_a_folder_without_graded_prompts_is_a_sentence(
    main: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmark", "--json", "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"holds no \.jsonl file of graded prompts"):
        main()


def test_a_line_that_is_no_graded_prompt_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n")
    monkeypatch.setattr("sys.argv", ["cascade", "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"a\.jsonl:1 "):
        cascade.main()
