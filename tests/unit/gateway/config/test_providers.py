import pytest

from gateway.config.price_files import load_price_book
from gateway.config.providers import HostedModel, HostedProvider, hosted_from_environment, load_providers
from gateway.routing.rules import specialty_of

NOVEMBER_2026_US = 1_794_000_000_000_000


def test_a_model_appears_with_its_providers_key() -> None:
    (provider,) = hosted_from_environment({"DEEPSEEK_API_KEY": "k", "HOME": "/"})
    assert (provider.name, provider.key_env, provider.wire_format) == ("deepseek", "DEEPSEEK_API_KEY", "openai")
    assert [model.name for model in provider.models] == ["deepseek-v4-flash", "deepseek-v4-pro"]
    assert not any("json_schema" in model.supports for model in provider.models), "DeepSeek answers 400 to one"


@pytest.mark.parametrize("environ", [{}, {"OPENAI_API_KEY": ""}, {"OPENAI_API_KEY": "  "}])
def test_without_a_key_nothing_appears(environ: dict[str, str]) -> None:
    assert hosted_from_environment(environ) == []


def test_the_first_variable_that_is_set_holds() -> None:
    both = {"GOOGLE_API_KEY": "b", "GEMINI_API_KEY": "a"}
    assert [provider.key_env for provider in hosted_from_environment(both)] == ["GEMINI_API_KEY"]
    assert [provider.key_env for provider in hosted_from_environment({"GOOGLE_API_KEY": "b"})] == ["GOOGLE_API_KEY"]


def test_every_provider_appears_with_its_key() -> None:
    environ = {provider.key_env: "k" for provider in load_providers()}
    assert hosted_from_environment(environ) == list(load_providers())
    assert [provider.name for provider in load_providers()] == [
        "openai",
        "anthropic",
        "gemini",
        "deepseek",
        "groq",
        "mistral",
        "together",
        "openrouter",
        "xai",
        "fireworks",
        "cerebras",
        "cohere",
        "jina",
        "voyage",
    ]


def test_model_names_are_unique() -> None:
    names = [model.name for provider in load_providers() for model in provider.models]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("provider", "model"),
    [(provider, model) for provider in load_providers() for model in provider.models],
    ids=[model.name for provider in load_providers() for model in provider.models],
)
def test_every_default_model_has_a_price(provider: HostedProvider, model: HostedModel) -> None:
    book = load_price_book(providers=[provider.price_name])
    assert book.lookup(provider.price_name, model.upstream_model, NOVEMBER_2026_US) is not None
    specialties = {specialty_of(one.supports) for one in provider.models}
    writers = sum(specialty_of(one.supports) is None for one in provider.models)
    assert 2 <= writers <= 4 or specialties == {"rerank"}
