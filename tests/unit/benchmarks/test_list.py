"""`make bench` lists every benchmark that can be run."""

from pathlib import Path

import pytest

from benchmarks.__main__ import main

RESULTS = Path("benchmarks/results")


def test_every_benchmark_with_results_is_listed_with_what_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    lines = capsys.readouterr().out.splitlines()[2:]
    purposes = {words[0]: words[1] for words in (line.split(maxsplit=1) for line in lines)}
    variants = {"engine_cpu_avx2", "streams_2_workers"}
    assert purposes.keys() >= {file.stem for file in RESULTS.glob("*.json")} - variants
    assert all(purpose.endswith((".", ")")) for purpose in purposes.values()), "a sentence each"
