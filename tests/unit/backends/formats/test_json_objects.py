from backends.formats.json_objects import without_escapes


def test_words_are_found_behind_escapes_and_what_cannot_be_read_stays() -> None:
    assert without_escapes(b'["\\u0061\\/"]') == b'["a/"]'
    assert without_escapes(b"[1e400]") == b"[1e400]"
