from gateway.economics.gpu_cost import break_even_utilisation


def test_a_free_competitor_is_never_beaten() -> None:
    assert break_even_utilisation(2.0, 0.0) is None


def test_above_one_means_never() -> None:
    share = break_even_utilisation(10.0, 3.264)
    assert share is not None
    assert share > 1
