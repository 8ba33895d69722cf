import pytest

from gateway.errors import NoEligibleModel
from gateway.routing.idle import awaits_a_busy_model
from tests.builders import make_candidate, make_prices, make_request, make_snapshot

CHEAP = make_candidate("cheap", prices=make_prices(1.0, 4.0))
DEAR = make_candidate("dear", prices=make_prices(10.0, 40.0))
SNAPSHOT = make_snapshot(candidates=[CHEAP, DEAR])


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({}, False),
        ({"cheap": (5, 0.0)}, False),
        ({"cheap": (2, 0.0)}, False),
        ({"cheap": (1, 0.0)}, True),  # the last slot is reserved for others
        ({"cheap": (0, 9.0)}, True),
        ({"cheap": (5, 0.0), "dear": (0, 9.0)}, False),  # the busy one is not the one it should go to
        ({"cheap": (0, 9.0), "dear": (0, 9.0)}, True),
        ({"cheap": (-1, 0.0)}, False),  # it is down: waiting does not help, the other is asked
    ],
)
def test_a_request_waits_for_whom_it_should_go_to(state: dict[str, tuple[int, float]], expected: bool) -> None:
    request = make_request(backend_state=state)
    assert awaits_a_busy_model(request, SNAPSHOT, lambda model: 1) is expected


def test_where_nobody_can_serve_it_is_said() -> None:
    request = make_request(backend_state={"cheap": (0, 0.0)}, needs=("vision",))
    with pytest.raises(NoEligibleModel):
        awaits_a_busy_model(request, SNAPSHOT, lambda model: 1)
