"""What the page Try it sends to the gateway."""

import h11
import pytest

from dashboards.pages.try_it import header_of


@pytest.mark.parametrize("typed", ["a, b", " a, b", "a, b ", " ", "é ", "a\nb", ""])
def test_tags_as_typed_fit_a_header(typed: str) -> None:
    """A blank behind the last tag used to be told as a gateway that does not answer."""
    h11.Request(method="POST", target="/", headers=[("host", "gateway"), ("x-breakeven-tags", header_of(typed))])
