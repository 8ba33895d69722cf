import pytest

from gateway.errors import ConfigurationError
from gateway.from_litellm.config_file import parse_fields, read_config
from gateway.from_litellm.draft import UNKNOWN_WINDOW
from tests.unit.gateway.from_litellm.builders import SINCE, drafted, entry, rules

OPENAI = "os.environ/OPENAI_API_KEY"
MINI = "openai/gpt-5.4-mini"


def test_a_model_that_comes_with_its_providers_key_needs_nothing_but_the_key() -> None:
    made = drafted(entry("gpt-5.4-mini", MINI, api_key=OPENAI))
    assert made.rules["models"] == {}
    assert "backends" not in made.settings
    assert made.variables.keys() == {"OPENAI_API_KEY"}
    assert not made.notes


@pytest.mark.parametrize("written", [MINI, "gpt-5.4-mini"])
def test_under_another_name_it_is_the_same_model(written: str) -> None:
    made = drafted(entry("mini", written))
    spec = made.rules["models"]["mini"]
    assert (spec["backend"], spec["upstream_model"]) == ("openai", "gpt-5.4-mini")
    assert "vision" in spec["supports"]
    assert spec["context_window"] == 272_000


def test_one_model_with_several_keys_is_one_model_at_a_backend_with_several_keys() -> None:
    made = drafted(
        entry("mini", MINI, api_key="os.environ/A", rpm=100, max_parallel_requests=4),
        entry("mini", MINI, api_key="os.environ/B", rpm=200, max_parallel_requests=5),
    )
    [(name, block)] = made.settings["backends"].items()
    assert block["keys"] == [{"env": "A", "requests_per_minute": 100}, {"env": "B", "requests_per_minute": 200}]
    assert (block["base_url"], block["provider"]) == ("https://api.openai.com/v1", "openai")
    assert made.rules["models"]["mini"]["backend"] == name
    assert made.settings["limits"]["models"]["mini"] == {"requests_per_minute": 300, "max_parallel_requests": 9}
    assert rules(made) == {}


def test_one_name_at_several_places_is_a_rule_for_that_name() -> None:
    azure = entry(
        "gpt-4o", "azure/mine", {"base_model": "azure/gpt-4o"}, api_base="https://eu.example", api_version="1"
    )
    made = drafted(azure, entry("gpt-4o", MINI))
    models = made.rules["models"]
    assert models["gpt-4o@azure-eu.example"]["upstream_model"] == "azure/mine"
    assert models["gpt-4o@azure-eu.example"]["priced_as"] == "openai/gpt-4o"
    assert made.settings["backends"]["azure-eu.example"]["litellm"] == {
        "api_base": "https://eu.example",
        "api_version": "1",
    }
    assert made.needs_litellm
    assert rules(made) == {"gpt-4o": (["gpt-4o"], ["gpt-4o@azure-eu.example", "gpt-4o@openai"], "expected_cost")}


def test_fallbacks_of_every_kind_come_behind_in_their_order() -> None:
    made = drafted(
        entry("a", MINI),
        entry("b", "anthropic/claude-sonnet-5-5"),
        entry("c", "groq/x"),
        litellm_settings={"fallbacks": [{"a": ["b"]}], "context_window_fallbacks": [{"a": ["c", "b"]}]},
        router_settings={"default_fallbacks": ["c"], "model_group_alias": {"old": "a", "lost": "nowhere"}},
    )
    assert rules(made) == {
        "a": (["a", "old"], ["a", "b", "c"], "order"),
        "b": (["b"], ["b", "c"], "order"),
    }
    assert any("lost stands for nowhere" in note for note in made.notes)


def test_without_retries_the_fallbacks_are_asked_nevertheless() -> None:
    made = drafted(
        entry("a", MINI),
        entry("b", "anthropic/claude-sonnet-5-5"),
        litellm_settings={"num_retries": 0, "fallbacks": [{"a": ["b"]}]},
    )
    assert made.settings["fallback"] == {"max_attempts": 2}


def test_who_says_which_comes_first_is_heeded() -> None:
    made = drafted(entry("a", MINI, order=2), entry("a", "anthropic/claude-sonnet-5-5", order=1))
    assert rules(made)["a"] == (["a"], ["a@anthropic", "a@openai"], "order")


def test_servers_of_ones_own() -> None:
    made = drafted(
        entry("own", "hosted_vllm/Qwen/Qwen3-32B", api_base="http://10.0.0.5:8000/v1", api_key="none", timeout=30),
        entry("same", "hosted_vllm/other", api_base="http://10.0.0.5:8000/v1", timeout=30),
        entry("llama", "ollama/llama3"),
        entry("proxy", "litellm_proxy/x", api_base="https://gw.example/v1", api_key="sk-written-here"),
        entry("claude", "anthropic/claude", api_base="https://claude.example"),
    )
    blocks = made.settings["backends"]
    assert blocks["vllm-10.0.0.5-8000"] == {
        "base_url": "http://10.0.0.5:8000/v1",
        "health_from": "vllm",
        "timeouts": {"first_byte_seconds": 30.0},
    }
    assert made.rules["models"]["own"]["backend"] == made.rules["models"]["same"]["backend"] == "vllm-10.0.0.5-8000"
    assert blocks["ollama-127.0.0.1-11434"]["base_url"] == "http://127.0.0.1:11434/v1"
    assert blocks["anthropic-claude.example"]["base_url"] == "https://claude.example/v1"
    assert blocks["litellm-proxy-gw.example"]["api_key_env"] == "LITELLM_PROXY_GW_EXAMPLE_API_KEY"
    assert "sk-written-here" not in repr(made)
    assert made.unsure == ["own", "same", "llama", "proxy", "claude"]
    assert made.rules["models"]["own"]["context_window"] == UNKNOWN_WINDOW
    assert made.unpriced == made.unsure


def test_no_secret_is_copied_whatever_it_is_called() -> None:
    made = drafted(
        entry("a", "bedrock/x", aws_secret_access_key="hush-1", aws_region_name="us-east-1"),
        entry("b", "vertex_ai/y", vertex_credentials="os.environ/V", vertex_project="p"),
        entry("c", "watsonx/z", zen_api_key="hush-2", api_base="https://w.example"),
        general_settings={"master_key": "hush-3", "database_url": "postgresql://u:hush-4@h/d"},
        environment_variables={"OTHER_KEY": "hush-5"},
    )
    assert "hush" not in repr(made)
    assert made.variables["GOOGLE_APPLICATION_CREDENTIALS"].endswith("it is in V now")
    assert "AWS_SECRET_ACCESS_KEY" in made.variables
    assert made.settings["backends"]["bedrock-us-east-1"] == {"litellm": {"aws_region_name": "us-east-1"}}
    assert any("zen_api_key is a secret" in note for note in made.notes)


@pytest.mark.parametrize(
    ("base", "ours"),
    [
        ("https://user:hush@h.example/v1", "https://h.example/v1"),
        ("https://hush@h.example:8443/v1?", "https://h.example:8443/v1"),
        ("https://h.example/v1?subscription-key=hush&team=a", "https://h.example/v1"),
        ("https://u:hush@h.example/v1?sig=hush#hush", "https://h.example/v1"),
    ],
)
def test_no_credential_of_an_address_is_copied_and_what_to_do_is_said(base: str, ours: str) -> None:
    made = drafted(entry("a", "openai/x", api_base="os.environ/BASE"), environ={"BASE": base})
    [block] = made.settings["backends"].values()
    assert block == {"base_url": ours}
    assert "hush" not in repr(made)
    assert any("proxy in front of it add" in note for note in made.notes)


def test_an_address_that_is_none_is_left_to_the_check_of_the_result() -> None:
    [block] = drafted(entry("a", "openai/x", api_base="http://[")).settings["backends"].values()
    assert block == {"base_url": "http://["}


def test_a_key_in_an_address_becomes_the_backends_key() -> None:
    made = drafted(
        entry("a", "hosted_vllm/x", api_base="https://h.example/v1?api-key=hush"),
        entry("b", "hosted_vllm/y", api_base="https://other.example/v1?api-key=hush", api_key="os.environ/B"),
    )
    first, second = made.settings["backends"].values()
    assert (first["base_url"], first["api_key_env"]) == ("https://h.example/v1", "VLLM_H_EXAMPLE_API_KEY")
    assert (second["base_url"], second["api_key_env"]) == ("https://other.example/v1", "B")
    assert made.variables["VLLM_H_EXAMPLE_API_KEY"].endswith("stands in its address in LiteLLM's file")
    assert "hush" not in repr(made)
    assert sum("it is the backend's key now" in note for note in made.notes) == 1


def test_litellm_keeps_what_is_no_secret_of_an_address() -> None:
    made = drafted(
        entry(
            "a",
            "azure/x",
            api_base="https://h.example/?api-version=2025-04-01&api-key=hush",
            aws_bedrock_runtime_endpoint="https://u:hush@b.example",
        )
    )
    [block] = made.settings["backends"].values()
    assert block["litellm"]["api_base"] == "https://h.example/?api-version=2025-04-01"
    assert block["litellm"]["aws_bedrock_runtime_endpoint"] == "https://b.example"
    assert "hush" not in repr(made)


def test_an_address_in_a_variable_is_looked_up_and_said_where_it_is_missing() -> None:
    own = entry("own", "openai/x", api_base="os.environ/BASE")
    made = drafted(own, environ={"BASE": "http://h:1/v1"})
    assert made.settings["backends"]["openai-h-1"]["base_url"] == "http://h:1/v1"
    other = entry("other", "azure/x", api_base="https://e.example", api_version="os.environ/VERSION")
    with pytest.raises(
        ConfigurationError, match=r"BASE \(api_base of model_list\[0\] \(own\)\); VERSION \(api_version"
    ):
        drafted(own, other)


def test_prices_of_the_file_then_of_the_catalogue_then_of_the_map() -> None:
    known = {"bedrock/m": {"input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05, "max_input_tokens": 7}}
    made = drafted(
        entry("own", MINI, input_cost_per_token=2e-07, output_cost_per_token=0),
        entry("listed", MINI),
        entry("mapped", "bedrock/m"),
        entry("together", "together_ai/glm"),
        entry("nowhere", "groq/unheard"),
        known=known,
    )
    assert made.overrides == [
        {
            "provider": "openai",
            "model": "gpt-5.4-mini",
            "prices": [{"from": SINCE, "source": "LiteLLM's config.yaml", "input": 0.2, "output": 0}],
        },
        {
            "provider": "bedrock",
            "model": "bedrock/m",
            "prices": [{"from": SINCE, "source": "LiteLLM's map", "input": 3, "output": 15}],
        },
    ]
    assert made.settings["price_overrides"] == ["prices.yaml"]
    assert made.rules["models"]["mapped"]["context_window"] == 7
    assert made.unpriced == ["nowhere"]


@pytest.mark.parametrize("price", [float("nan"), float("inf"), -1, True, "text", [1]])
def test_what_is_no_price_is_said_and_the_catalogues_holds(price: object) -> None:
    made = drafted(entry("m", MINI, input_cost_per_token=price, output_cost_per_token=0))
    assert (made.overrides, made.unpriced) == ([], [])
    assert any("(m): its input_cost_per_token is left out" in note for note in made.notes)


@pytest.mark.parametrize("name", ["gpt-5.4-mini", "mini"])
def test_a_price_that_yaml_reads_as_text_holds_for_models_that_we_name_too(name: str) -> None:
    made = drafted(entry(name, MINI, input_cost_per_token="1e-6", output_cost_per_token="4e-6"))
    [override] = made.overrides
    assert override["prices"] == [{"from": SINCE, "source": "LiteLLM's config.yaml", "input": 1, "output": 4}]
    assert "gpt-5.4-mini" not in made.rules["models"]


def test_of_two_prices_of_one_model_the_first_holds() -> None:
    """Both names are booked as one model of one provider, where the last would hold without a word."""
    made = drafted(*(entry(f"m{usd}", MINI, input_cost_per_token=usd, output_cost_per_token=0) for usd in (1e-6, 2e-6)))
    assert [one["prices"][0]["input"] for one in made.overrides] == [1]
    assert any("(m2e-06): its price is left out" in note for note in made.notes)


def test_models_that_do_one_thing() -> None:
    made = drafted(
        entry("ears", "groq/w", {"mode": "audio_transcription"}),
        entry("brush", "openai/b", {"mode": "image_generation"}),
        entry("films", "openai/s", {"mode": "video_generation"}),
    )
    assert made.rules["models"]["ears"]["supports"] == ["transcription"]
    assert made.rules["models"]["brush"]["supports"] == ["images"]
    assert "films" not in made.rules["models"]
    assert any("is for video_generation, which is not served here" in note for note in made.notes)


def test_those_who_rank_documents() -> None:
    """Two providers by their keys, two servers at their addresses, and one that only litellm could ask."""
    ranks = {"mode": "rerank"}
    known = {"cohere/r": {"mode": "rerank", "input_cost_per_query": 0.002, "input_cost_per_token": 0.0}}
    made = drafted(
        entry("by-search", "cohere/r"),
        entry("by-token", "voyage/v", {**ranks, "input_cost_per_token": 5e-8, "output_cost_per_token": 0}),
        entry("bge-reranker", "hosted_vllm/BAAI/bge-reranker", api_base="http://v:1/v1"),
        entry("tei", "huggingface/r", ranks, api_base="http://t:1"),
        entry("azure", "azure_ai/r", ranks, api_base="http://a:1"),
        known=known,
    )
    models = made.rules["models"]
    assert {name: one["supports"] for name, one in models.items()} == {
        name: ["rerank"] for name in ("by-search", "by-token", "bge-reranker", "tei")
    }
    assert (models["by-search"]["backend"], models["by-token"]["backend"]) == ("cohere", "voyage")
    blocks = made.settings["backends"]
    assert blocks[models["bge-reranker"]["backend"]] == {"base_url": "http://v:1/v1", "health_from": "vllm"}
    assert blocks[models["tei"]["backend"]] == {"base_url": "http://t:1", "provider": "text-embeddings-inference"}
    assert [one["prices"][0] for one in made.overrides] == [
        {"from": SINCE, "source": "LiteLLM's map", "input": 0, "output": 0, "per_search_unit_usd": 0.002},
        {"from": SINCE, "source": "LiteLLM's config.yaml", "input": 0.05, "output": 0},
    ]
    assert [note for note in made.notes if "rerank" in note] == [
        "model_list[4] (azure) is for rerank, which nobody is asked for through litellm: name another provider's, or a "
        "server's address (docs/api.md#rerank)"
    ]


def test_chats_of_a_provider_that_is_asked_for_rankings_alone_go_through_litellm() -> None:
    made = drafted(entry("writes", "cohere/command"), entry("ranks", "cohere/rerank-9"))
    assert made.rules["models"]["ranks"]["backend"] == "cohere"
    assert made.settings["backends"][made.rules["models"]["writes"]["backend"]] == {"litellm": {}}
    assert made.rules["models"]["writes"]["backend"] != "cohere"


def test_what_a_model_does_is_seen_in_its_name_where_nothing_says_it() -> None:
    names = {
        "dall-e-3": "images",
        "tts-1": "speech",
        "whisper-1": "transcription",
        "text-embedding-ada-002": "embeddings",
    }
    made = drafted(*(entry(name, name) for name in names))
    assert {name: made.rules["models"][name]["supports"] for name in names} == {
        name: [ability] for name, ability in names.items()
    }


def test_several_models_at_one_place_are_called_by_their_own_names() -> None:
    made = drafted(
        entry("a", "openai/x", api_base="http://h:1/v1"),
        entry("a", "openai/y", api_base="http://h:1/v1"),
        entry("a", "openai/gpt-4o"),
    )
    assert rules(made)["a"][1] == ["a@x", "a@y", "a@gpt-4o"]


def test_whatever_is_left_out_is_said() -> None:
    made = drafted(
        entry("anthropic/*", "anthropic/*"),
        entry("who", "unheard-of"),
        entry("auto", MINI),
        entry("a", MINI, weight=3, timeout=9, stream_timeout=1, input_cost_per_second=2, extra_headers={"x": "y"}),
        {"model_name": "half"},
        litellm_settings={"num_retries": 2, "callbacks": ["x"], "unheard": 1},
        router_settings={"routing_strategy": "latency-based-routing"},
        surprise=1,
    )
    said = "\n".join(made.notes)
    for part in (
        "anthropic/*", "does not say whose unheard-of is", "is not a valid model name", "weight of litellm_params",
        "timeout has no counterpart", "stream_timeout of litellm_params", "input_cost_per_second of litellm_params",
        "extra_headers of litellm_params", "model_list[4] names no model",
        "litellm_settings.callbacks", "litellm_settings.unheard: has no counterpart here", "latency-based-routing",
        "surprise: has no counterpart here",
    ):  # fmt: skip
        assert part in said
    assert made.settings["fallback"] == {"max_attempts": 3}


@pytest.mark.parametrize("text", ["", "model_list: 1", "a: [", "- x", "models: []"])
def test_another_file_is_told_from_litellms(text: str) -> None:
    with pytest.raises(ConfigurationError):
        read_config(parse_fields(text, file="config.yaml"), file="config.yaml")
