"""The list of prices says how many there are, and how to find the rest."""

import pytest

from dashboards.pages.models import cited, listed, named_like, priced_since


@pytest.mark.parametrize(
    ("shown", "total", "said"),
    [
        (1, 1, "1 model in all."),
        (7, 7, "7 models in all."),
        (100, 845, "The first 100 of 845 models; a search finds the others."),
    ],
)
def test_a_list_cut_short_says_so(shown: int, total: int, said: str) -> None:
    assert listed(shown, total) == said


def test_what_a_search_found_is_not_told_as_all_there_is() -> None:
    assert listed(0, 0, "zzz") == "0 models with 'zzz' in provider or name."
    assert listed(1, 1, "gpt-5") == "1 model with 'gpt-5' in provider or name."
    assert listed(100, 120, "gpt") == (
        "The first 100 of 120 models with 'gpt' in provider or name; a search finds the others."
    )


def test_a_cited_page_is_told_by_its_site() -> None:
    assert cited("a 1.0, citing https://prices.example.com/docs/en/overview") == "a 1.0, citing prices.example.com"
    assert cited("a 1.0") == "a 1.0"


def test_an_hour_of_a_gpu_costs_what_was_written() -> None:
    assert priced_since({"gpu_hour_usd": "0.02"}) == "$0.02 / GPU hour"
    priced = {"gpu_hour_usd": None, "price_from": "2026-11-01", "price_source": "litellm 1.0", "discount": "0"}
    assert priced_since(priced) == "1 Nov 2026 · litellm 1.0"
    assert priced_since({**priced, "discount": "0.120"}) == "1 Nov 2026 · litellm 1.0 · you pay 12 % less"
    assert priced_since({**priced, "discount": "-1"}) == "1 Nov 2026 · litellm 1.0 · you pay 100 % more"


def test_a_search_finds_models_of_the_catalogue_too() -> None:
    models = [{"backend": "openai", "name": "gpt-5"}, {"backend": "local", "name": "smollm2"}]
    assert [one["name"] for one in named_like(models, "OpenAI/GPT")] == ["gpt-5"]
    assert named_like(models, "") == models
