from backends.formats.json_objects import without_escapes


def test_words_are_told_without_escapes_that_hide_them_also_beside_what_other_readers_of_json_refuse() -> None:
    assert without_escapes(b'["\\u0061\\/\\u003A \\u00e4\\n",1e400,"\\ud800"]') == b'["a/: \\u00e4\\n",1e400,"\\ud800"]'
