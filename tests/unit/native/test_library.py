"""A C++ source is compiled once and found again, or shipped compiled, or done without if there is no compiler."""

import os
import tempfile
from pathlib import Path

import pytest

from native.library import find_compiler, load_library, processor_flags

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler: install g++")
FLAGS = ("-O1", "-fPIC")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "breakeven"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source" / "seven.cpp"
    path.parent.mkdir()
    path.write_text('extern "C" int seven() { return ANSWER; }')
    path.with_name("answer.h").write_text("")
    return path


def answer(source: Path, of: str = "7") -> int | None:
    library = load_library(source, (*FLAGS, f"-DANSWER={of}"))
    return None if library is None else library.seven()


@needs_compiler
def test_what_is_compiled_is_kept_and_found_by_who_has_no_compiler(
    source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer(source) == 7
    assert len([*cache.iterdir()]) == 1
    monkeypatch.setenv("PATH", "")
    assert answer(source) == 7


@needs_compiler
def test_other_flags_another_source_or_another_header_are_another_library(source: Path, cache: Path) -> None:
    assert answer(source) == 7
    assert answer(source, "8") == 8
    source.with_name("answer.h").write_text("// changed")
    assert answer(source) == 7
    source.write_text('extern "C" int seven() { return -ANSWER; }')
    assert answer(source) == -7
    assert len([*cache.iterdir()]) == 4


@needs_compiler
def test_a_library_beside_its_source_is_taken_where_there_is_no_compiler(
    source: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer(source) == 7
    for built in cache.iterdir():
        built.rename(source.with_name(built.name))
    monkeypatch.setenv("PATH", "")
    assert answer(source) == 7


@needs_compiler
def test_who_can_keep_nothing_compiles_at_each_start(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_way = tmp_path / "a file"
    in_the_way.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(in_the_way))
    assert answer(source) == 7


@needs_compiler
def test_where_nothing_can_be_written_there_is_no_library(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine and the gateway ended with that on a full disk."""
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert answer(source) is None


@needs_compiler
def test_a_user_whom_the_system_does_not_know_compiles_at_each_start_too(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", unknown)
    assert answer(source) == 7


@needs_compiler
def test_what_does_not_compile_is_done_without_and_leaves_nothing_behind(source: Path, cache: Path) -> None:
    assert answer(source, "}") is None
    assert not [*cache.iterdir()]


def test_without_a_compiler_there_is_no_library(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    assert answer(source) is None


@needs_compiler
def test_a_damaged_library_is_compiled_again(
    source: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer(source) == 7
    (built,) = cache.iterdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    damaged = tmp_path / "other" / "breakeven" / built.name
    damaged.parent.mkdir(parents=True)
    damaged.write_text("half a file")
    assert answer(source) == 7


@pytest.mark.parametrize("name", ["flags", "Features"])
def test_features_are_those_of_the_first_processor_whatever_its_kind_calls_them(tmp_path: Path, name: str) -> None:
    listing = tmp_path / "cpuinfo"
    listing.write_text(f"processor\t: 0\n{name}\t: fp asimddp\n\nprocessor\t: 1\n{name}\t: sve\n")
    assert {"fp", "asimddp"} <= processor_flags(listing)
    assert "sve" not in processor_flags(listing)
    assert processor_flags(tmp_path / "none") == frozenset()
