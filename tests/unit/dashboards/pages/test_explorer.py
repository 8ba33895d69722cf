"""Keys in the explorer have names; two of one name are told apart."""

from dashboards.pages.explorer import labels


def test_a_name_that_two_keys_have_stands_with_the_id() -> None:
    assert labels({"key_1": "chat", "key_2": "chat", "key_3": "batch"}) == {
        "key_1": "chat (key_1)",
        "key_2": "chat (key_2)",
        "key_3": "batch",
    }
    assert labels({}) == {}
