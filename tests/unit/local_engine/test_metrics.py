"""What the engine tells of its queue."""

from local_engine.metrics import EngineMetrics, answer_timings
from local_engine.request import Request
from local_engine.sampling.sampling_params import SamplingParams


def test_the_mean_wait_is_of_those_as_important_or_more() -> None:
    metrics = EngineMetrics()
    for priority, seconds in ((5, 100.0), (0, 6.0), (-5, 2.0)):
        request = Request("r", [1], SamplingParams(), priority=priority)
        metrics.record_end(request, answer_timings(request, seconds))
    assert (metrics.recent_queue_seconds(), metrics.recent_queue_seconds(5)) == (4.0, 36.0)


def test_waits_are_read_while_the_step_loop_adds_to_them() -> None:
    """The health check failed then, now and again."""
    metrics, request = EngineMetrics(), Request("r", [1], SamplingParams())

    class Meanwhile(int):
        """A priority; an answer ends each time that one is compared with it."""

        def __ge__(self, other: int) -> bool:
            metrics.record_end(request, answer_timings(request, 4.0))
            return super().__ge__(other)

    metrics.record_end(request, answer_timings(request, 4.0))
    assert metrics.recent_queue_seconds(Meanwhile(0)) == 4.0
