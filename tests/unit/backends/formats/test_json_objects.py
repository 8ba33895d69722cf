from backends.formats.json_objects import without_escapes


def test_words_are_told_without_escapes_that_hide_them_also_beside_what_other_readers_of_json_refuse() -> None:
    text = b'["{\\\\u0061}\\u0061\\/\\u003A \\u00e4\\n\\u000a\\ud83d\\ude00\\u0022",1e400,"\\ud800"]'
    assert without_escapes(text) == b'["{a}a/: \xc3\xa4\\n\\n\xf0\x9f\x98\x80\\"",1e400,"\xed\xa0\x80"]'
