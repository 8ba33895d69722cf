"""A disposable file: whatever is wrong with it, it is replaced, or an error says why not."""

import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.errors import StoreDown
from gateway.storage.turns.disposable_file import DisposableFile, checkpoint, remove_file, writing

SCHEMA = ("CREATE TABLE kept (text TEXT NOT NULL)",)


def prepare_nothing(connection: sqlite3.Connection) -> None:
    return None


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept.db"


@pytest.fixture
def file(path: Path) -> Iterator[DisposableFile]:
    file = DisposableFile(path, SCHEMA, prepare_nothing)
    yield file
    file.close()


def keep(text: str) -> Callable[[sqlite3.Connection], None]:
    def ask(connection: sqlite3.Connection) -> None:
        with writing(connection):
            connection.execute("INSERT INTO kept VALUES (?)", (text,))

    return ask


def kept(connection: sqlite3.Connection) -> list[str]:
    return [text for (text,) in connection.execute("SELECT text FROM kept")]


def modes(path: Path) -> set[int]:
    return {stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}


def test_its_owner_alone_reads_it_and_what_sqlite_has_beside_it(path: Path, file: DisposableFile) -> None:
    file.ask(keep("a"))
    assert len(list(path.parent.iterdir())) == 3
    assert modes(path) == {0o600}
    file.close()
    path.chmod(0o644)
    file.ask(keep("b"))
    assert modes(path) == {0o600}
    assert file.ask(kept) == ["a", "b"]


def test_all_of_it_is_removed(path: Path, file: DisposableFile) -> None:
    file.ask(keep("a"))
    remove_file(path)
    remove_file(path)
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("found", [b"this is no database at all" * 400, b"SQLite format 3\0" + b"\xff" * 9000])
def test_what_is_no_database_is_replaced(
    path: Path, file: DisposableFile, found: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(found)
    file.ask(keep("a"))
    assert file.ask(kept) == ["a"]
    assert "kept.db is damaged (file is not a database): its content is lost" in caplog.text


def test_pages_that_are_torn_are_noticed_by_whoever_needs_them(
    path: Path, file: DisposableFile, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(100):
        file.ask(keep(f"{number}" * 1000))
    file.close()
    with path.open("r+b") as bytes_of_it:
        bytes_of_it.seek(4096)
        bytes_of_it.write(b"\xa5" * (path.stat().st_size - 4096))
    assert file.ask(kept) == []
    file.ask(keep("a"))
    assert file.ask(kept) == ["a"]
    assert "malformed" in caplog.text


@pytest.mark.parametrize(
    "tables", ["CREATE TABLE kept (text TEXT)", "CREATE TABLE others (x)", f"{SCHEMA[0]}; CREATE TABLE x (x)"]
)
def test_another_versions_tables_are_replaced(
    path: Path, file: DisposableFile, tables: str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.executescript(tables)
    file.ask(keep("a"))
    assert file.ask(kept) == ["a"]
    assert "kept.db was written by another version" in caplog.text


def test_a_place_where_no_file_can_be_is_told_and_tried_again(path: Path, file: DisposableFile) -> None:
    path.mkdir()
    for _ in range(2):
        with pytest.raises(StoreDown, match=r"cannot use .*kept\.db: unable to open database file"):
            file.ask(kept)
    path.rmdir()
    assert file.ask(kept) == []


def test_another_process_that_has_it_locked_is_waited_for_and_then_told(path: Path, file: DisposableFile) -> None:
    file.ask(keep("a"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreDown, match="database is locked"):
            file.ask(keep("b"))
        assert file.ask(kept) == ["a"]
        other.execute("COMMIT")
    file.ask(keep("c"))
    assert file.ask(kept) == ["a", "c"]


def test_a_full_disk_is_told_and_passes(file: DisposableFile) -> None:
    def limit(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA max_page_count=4")

    def lift(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA max_page_count=1000")

    file.ask(keep("a"))
    file.ask(limit)
    with pytest.raises(StoreDown, match="database or disk is full"):
        file.ask(keep("b" * 100_000))
    assert file.ask(kept) == ["a"]
    file.ask(lift)
    file.ask(keep("c" * 100_000))


def test_a_file_that_could_not_be_written_for_a_while_is_opened_again(file: DisposableFile) -> None:
    def deny(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA query_only=ON")

    file.ask(deny)
    with pytest.raises(StoreDown, match="readonly"):
        file.ask(keep("a"))
    file.ask(keep("b"))
    assert file.ask(kept) == ["b"]


def test_what_is_in_the_log_comes_into_the_file_and_the_log_has_no_length(path: Path, file: DisposableFile) -> None:
    file.ask(keep("the text"))
    assert b"the text" not in path.read_bytes()
    file.ask(checkpoint)
    assert b"the text" in path.read_bytes()
    assert path.with_name("kept.db-wal").stat().st_size == 0


def test_a_failed_transaction_leaves_nothing(file: DisposableFile) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        with writing(connection):
            connection.execute("INSERT INTO kept VALUES ('b')")
            raise StoreDown("nothing of it")

    file.ask(keep("a"))
    with pytest.raises(StoreDown, match="nothing of it"):
        file.ask(fail)
    assert file.ask(kept) == ["a"]
