"""Which end user a body names; it is booked, and only where the deployment says so."""

import json
from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.request.end_user import MOST_CHARACTERS, end_user_of
from gateway.request.run import Incoming
from tests.rig import Rig

FORM = (
    b'--x\r\nContent-Disposition: form-data; name="user"\r\n\r\nuser-7\r\n'
    b'--x\r\nContent-Disposition: form-data; name="image"; filename="user"\r\n\r\nuser-8\r\n--x--\r\n'
)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, None),
        ({"user": "user-7"}, "user-7"),
        ({"user": "old", "safety_identifier": "new", "metadata": {"user_id": "third"}}, "new"),
        ({"user": "", "metadata": {"user_id": "user-7", "more": [1]}}, "user-7"),
        ({"metadata": ["user_id"], "user": None}, None),
        ({"user": 7, "metadata": {"user_id": {"a": 1}}}, None),
        ({"user": "é" * MOST_CHARACTERS}, "é" * MOST_CHARACTERS),
    ],
)
def test_it_is_what_openai_or_anthropic_call_it(body: dict[str, Any], expected: str | None) -> None:
    assert end_user_of(Incoming("chat.completions", None, json.dumps(body).encode())) == expected


def test_a_form_names_it_in_a_field_and_not_in_a_file() -> None:
    incoming = Incoming("images.edits", None, FORM, content_type="multipart/form-data; boundary=x")
    assert end_user_of(incoming) == "user-7"
    assert (
        end_user_of(
            Incoming("images.edits", None, FORM.replace(b'"user"\r', b'"n"\r'), content_type=incoming.content_type)
        )
        is None
    )


def test_where_forms_are_not_taken_a_body_named_a_form_is_read_as_it_is() -> None:
    incoming = Incoming(
        "images.generations", None, b'{"user": "user-7"}', content_type="multipart/form-data; boundary=x"
    )
    assert end_user_of(incoming) == "user-7"


@pytest.mark.parametrize("name", ["x" * (MOST_CHARACTERS + 1), "a\x1b[2J", "(none)"])
async def test_one_that_reports_cannot_show_is_refused_where_they_are_recorded(name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"metadata.user_id: .* 256 printable"):
        await Rig(records_end_users=True).ask(metadata={"user_id": name})
    await Rig().ask(metadata={"user_id": name})


@pytest.mark.parametrize("value", [b"1e999", b"9" * 5000, b'{"a": 1e999}', b'"a\xff"'])
def test_what_the_bodys_reader_passes_over_is_the_callers_fault_too(value: bytes) -> None:
    with pytest.raises(InvalidRequest, match=r"The body is not (valid JSON|UTF-8 text)"):
        end_user_of(Incoming("chat.completions", None, b'{"metadata": %b}' % value))


@pytest.mark.parametrize(("records", "booked"), [(True, "user-7"), (False, None)])
async def test_the_books_have_it_only_if_the_deployment_says_so(*, records: bool, booked: str | None) -> None:
    rig = Rig(records_end_users=records)
    await rig.ask(user="user-7")
    assert rig.entry.intent.end_user == booked
