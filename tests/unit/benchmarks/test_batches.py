from benchmarks.batches import run, simulated


def test_a_batch_takes_less_from_callers_than_requests_that_do_not_wait() -> None:
    found = simulated(0.1)
    before, after = found["asked_at_once"], found["as_a_batch"]
    for day in (before, after):
        assert day["lines_at_the_hosted_model"] + day["lines_at_the_engine"] == found["lines"] == 200
    assert after["extra_usd_per_1000_lines"] < before["extra_usd_per_1000_lines"]
    assert before["done_after_share_of_window"] < after["done_after_share_of_window"] <= 1


def test_callers_are_the_same_whatever_becomes_of_the_batch() -> None:
    assert run(0.1, lines=0, waits=False).came == run(0.1, lines=100, waits=True).came
