"""Ids that callers see for responses stored at a provider."""

import pytest

from backends.errors import Untranslatable, UpstreamRejected
from backends.formats.responses import as_asked, as_shown
from backends.response_names import PREFIX, Named, ResponseNames

RED, BLUE = ResponseNames(b"r" * 64), ResponseNames(b"b" * 64)
NAME = RED.outward("resp_1", "openai")


def test_a_name_is_read_by_its_team_alone() -> None:
    assert RED.inward(NAME) == Named("resp_1", "openai")
    assert RED.outward("resp_1", "openai") == NAME, "a client compares names"
    assert "resp_1" not in NAME
    assert BLUE.inward(NAME) is None


def test_a_changed_name_is_nobodys() -> None:
    changed = [
        NAME[:at] + ("A" if NAME[at] != "A" else "B") + NAME[at + 1 :] for at in range(len(PREFIX), len(NAME) - 1)
    ]
    for wrong in (*changed, NAME[:-4], NAME + "AAAA", PREFIX, f"{PREFIX}é", f"{PREFIX}!!!"):
        assert RED.inward(wrong) is None, wrong


def test_what_was_not_named_here_passes_as_it_is() -> None:
    assert RED.inward("resp_68a") == Named("resp_68a", None)
    body = b'{"previous_response_id":"resp_68a"}'
    assert as_asked(body, RED, backend="openai") == body


@pytest.mark.parametrize("member", [b'"previous_response_id"', b'"previous\\u005fresponse_id"'])
def test_a_continued_response_gets_its_providers_name(member: bytes) -> None:
    body = b'{ "input":"say \\"%b\\"", %b : "%b"}' % (NAME.encode(), member, NAME.encode())
    wanted = b'{ "input":"say \\"%b\\"", %b : "resp_1"}' % (NAME.encode(), member)
    assert as_asked(body, RED, backend="openai") == wanted


def test_another_teams_response_is_not_found_and_anothers_backend_is_named() -> None:
    body = b'{"previous_response_id":"%b"}' % NAME.encode()
    with pytest.raises(UpstreamRejected, match="not found") as caught:
        as_asked(body, BLUE, backend="openai")
    assert b"previous_response_not_found" in caught.value.body
    with pytest.raises(Untranslatable, match="openai stores that response") as caught:
        as_asked(body, RED, backend="another")
    assert b"previous_response_not_found" in caught.value.body


def test_a_response_is_shown_under_its_name_and_one_that_is_not_stored_as_it_is() -> None:
    payload = b'{"id":"resp_2","previous_response_id": "resp_1","output":[{"id":"msg_1"}]}'
    shown = as_shown(payload, {"id": "resp_2", "previous_response_id": "resp_1"}, RED, backend="openai")
    assert shown == payload.replace(b"resp_2", RED.outward("resp_2", "openai").encode()).replace(
        b"resp_1", NAME.encode()
    )
    assert as_shown(payload, {"id": "resp_2", "store": False}, RED, backend="openai") == payload
