"""A form's fields are found and changed in place; forms that two parsers may read differently are rejected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from python_multipart import MultipartParser

from backends.formats.form_splice import NotAForm, find_fields, splice_form, text_fields, without_boundary

TYPE = "multipart/form-data; boundary=xyz"
AUDIO = b"RIFF\r\n--xy\r\n\x00\xff"


def part(name: str, value: bytes, *more: str) -> bytes:
    head = "\r\n".join([f'Content-Disposition: form-data; name="{name}"', *more])
    return b"--xyz\r\n" + head.encode() + b"\r\n\r\n" + value + b"\r\n"


def file_part(name: str, value: bytes) -> bytes:
    head = f'Content-Disposition: form-data; name="{name}"; filename="a.wav"\r\nContent-Type: audio/wav'
    return b"--xyz\r\n" + head.encode() + b"\r\n\r\n" + value + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--xyz--\r\n"


PLAIN = form(part("model", b"auto"), file_part("file", AUDIO), part("prompt", b""))


def test_fields_are_found_where_they_lie() -> None:
    fields = find_fields(PLAIN, TYPE)
    assert [(one.name, PLAIN[one.start : one.end], one.is_file) for one in fields] == [
        ("model", b"auto", False),
        ("file", AUDIO, True),
        ("prompt", b"", False),
    ]
    assert text_fields(PLAIN, fields) == {"model": "auto", "prompt": ""}


def test_a_value_is_replaced_and_nothing_else() -> None:
    assert splice_form(PLAIN, TYPE, {"model": "whisper-1"}) == PLAIN.replace(b"auto", b"whisper-1")


def test_a_missing_field_is_put_first() -> None:
    spliced = splice_form(form(file_part("file", AUDIO)), TYPE, {"model": "m", "response_format": "json"})
    fields = find_fields(spliced, TYPE)
    assert [one.name for one in fields] == ["model", "response_format", "file"]
    assert spliced[fields[2].start : fields[2].end] == AUDIO


def test_forms_are_equal_whatever_boundary_they_were_written_with() -> None:
    other = PLAIN.replace(b"--xyz", b"--another-one")
    said = without_boundary(PLAIN, TYPE)
    assert without_boundary(other, "multipart/form-data; boundary=another-one") == said
    assert AUDIO in said
    for changed in (b"auto", b"prompt", b"a.wav", b"audio/wav", AUDIO):
        assert without_boundary(PLAIN.replace(changed, changed + b"."), TYPE) != said


@pytest.mark.parametrize(("body", "kind"), [(PLAIN, "application/json"), (b"{}", TYPE), (PLAIN[:-4], TYPE)])
def test_what_is_no_form_is_compared_as_it_came(body: bytes, kind: str) -> None:
    assert without_boundary(body, kind) == body


def test_a_file_in_the_place_of_a_text_is_refused() -> None:
    """A provider would get both the text, inserted first, and the file, and could use either."""
    with pytest.raises(NotAForm, match="model is a file"):
        splice_form(form(file_part("model", b"dearer")), TYPE, {"model": "m"})


@pytest.mark.parametrize("name", ["Model", "model[]"])
def test_a_field_that_some_servers_take_for_an_edited_one_is_refused(name: str) -> None:
    with pytest.raises(NotAForm, match="taken for model"):
        splice_form(form(part("model", b"auto"), part(name, b"dear")), TYPE, {"model": "gpt"})


def test_a_quoted_boundary_and_lists_are_read() -> None:
    body = form(part("timestamp_granularities[]", b"word"), part("timestamp_granularities[]", b"segment"))
    assert len(find_fields(body, 'multipart/form-data; charset=utf-8; boundary="xyz"')) == 2
    assert len(find_fields(form(file_part("image", b"1"), file_part("image", b"2")), TYPE)) == 2


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "begin"),
        (b"preamble\r\n" + PLAIN, "begin"),
        (PLAIN[:-20], "is incomplete"),
        (form(part("model", b"a"), part("model", b"b")), "twice"),
        (form(part("model", b"a"), file_part("model", b"b")), "twice"),
        (form(file_part("model", b"a"), part("model", b"b")), "twice"),
        (PLAIN + b"more", "follows"),
        (form(b'--xyz\r\nContent-Disposition: form-data; name="model"\r\n\r\n'), "is incomplete"),
        (
            PLAIN.replace(b'--xyz\r\nContent-Disposition: form-data; name="prompt"', b"--xyzz\r\nprompt"),
            "something else",
        ),
        (form(b"--xyz\r\nContent-Type: text/plain\r\n\r\na\r\n"), "no plain name"),
        (form(b"--xyz\r\nContent-Disposition: form-data; name*=utf-8''model\r\n\r\na\r\n"), "no plain name"),
        (form(part("model", b"a", 'Content-Disposition: form-data; name="n"')), "two names"),
        (form(part("model", b"a", "Content-Transfer-Encoding: base64")), "encoded"),
        (form(part("model", b"a", " folded")), "cannot be read"),
        (form(*[part(f"p{place}", b"a") for place in range(201)]), "more than 200"),
    ],
)
def test_what_parsers_may_read_differently_is_refused(body: bytes, says: str) -> None:
    with pytest.raises(NotAForm, match=says):
        find_fields(body, TYPE)


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "multipart/form-data",
        "multipart/mixed; boundary=xyz",
        "multipart/form-data; boundary=xyz; charset=\u00e9",
        'multipart/form-data; boundary="x\r\nx-other: y"',
    ],
)
def test_another_kind_of_body_is_no_form(content_type: str) -> None:
    with pytest.raises(NotAForm, match="boundary"):
        find_fields(PLAIN, content_type)


def test_a_value_that_is_no_text_is_refused() -> None:
    body = form(part("model", b"\xff"))
    with pytest.raises(NotAForm, match="UTF-8"):
        text_fields(body, find_fields(body, TYPE))


def values_read_by_another(body: bytes) -> list[bytes]:
    """The values as parsed by Starlette's form parser."""
    found: list[bytearray] = []
    parser = MultipartParser(
        b"xyz",
        {
            "on_part_begin": lambda: found.append(bytearray()),
            "on_part_data": lambda data, start, end: found[-1].extend(data[start:end]),
        },
    )
    parser.write(body)
    parser.finalize()
    return [bytes(one) for one in found]


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.binary(max_size=60)), max_size=8, unique_by=lambda one: one[0])
)
def test_whatever_the_values_every_other_byte_stays(values: list[tuple[str, bytes]]) -> None:
    kept = [(name, value) for name, value in values if b"\r\n--xyz" not in b"\r\n" + value]
    body = form(part("model", b"auto"), *(file_part(name, value) for name, value in kept))
    spliced = splice_form(body, TYPE, {"model": "x" * 9})
    found = [(one.name, spliced[one.start : one.end]) for one in find_fields(spliced, TYPE)]
    assert found == [("model", b"x" * 9), *kept]
    assert values_read_by_another(spliced) == [value for _, value in found]
