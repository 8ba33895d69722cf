from pathlib import Path

from gateway.process.file_watch import FileWatch


def test_every_change_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "curve.json"
    watch = FileWatch(path)
    assert not watch.has_changed()
    path.write_text("a")
    assert [watch.has_changed(), watch.has_changed()] == [True, False]
    path.write_text("longer")
    assert watch.has_changed()
    path.unlink()
    assert not watch.has_changed()
