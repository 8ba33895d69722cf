"""Protobuf's JSON: names in two spellings, whole numbers in three."""

import pytest

from backends.formats.proto_json import NamedTwice, many_of, member_of, members_of, messages_of, whole_number


def test_a_member_is_found_in_either_spelling() -> None:
    fields = {"max_output_tokens": 1, "topP": 2, "top_k2": 3, "seed": None, "_x": 4}
    assert members_of(fields) == {"maxOutputTokens": 1, "topP": 2, "topK2": 3, "X": 4}
    assert member_of({"a": {"b_c": 1}}, "a") == {"bC": 1}
    assert member_of({"a": 1}, "a") == {}
    assert messages_of({"a": [{"b_c": 1}, 2]}, "a") == [{"bC": 1}]


def test_both_spellings_at_once_are_refused() -> None:
    with pytest.raises(NamedTwice, match="top_p"):
        members_of({"topP": 1, "top_p": None})


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (7, 7),
        ("7", 7),
        ("-7", -7),
        (7.0, 7),
        (7.5, None),
        ("x", None),
        ("1e3", None),
        (True, None),
        (None, None),
        ("9" * 19, None),
    ],
)
def test_whole_numbers(value: object, number: int | None) -> None:
    assert whole_number(value) == number


@pytest.mark.parametrize(
    ("value", "many"), [(None, None), ([], []), ([1], [1]), ({"a": 1}, [{"a": 1}]), ("x", ["x"]), (0, [0])]
)
def test_one_alone_is_a_list_of_one(value: object, many: object) -> None:
    assert many_of(value) == many
    assert messages_of({"a": {"b_c": 1}}, "a") == [{"bC": 1}]
