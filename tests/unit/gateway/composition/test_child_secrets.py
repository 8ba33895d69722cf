"""The secrets that the gateway's child processes do not get."""

from pathlib import Path

import pytest

from gateway.cli.serve.children import plan_children
from gateway.composition.child_secrets import secrets_in, writer_environment
from gateway.config.home import Home
from gateway.config.providers import load_providers
from gateway.config.settings import Settings

BLOCK = {"base_url": "http://x/v1"}
SETTINGS = Settings.model_validate(
    {
        "backends": {
            "one": {**BLOCK, "api_key_env": "MINE"},
            "two": {**BLOCK, "keys": [{"env": "TEAM_A"}, {"env": "TEAM_B"}]},
        },
        "sign_in": {
            "oidc": {
                "issuer": "https://id.example",
                "client_id": "x",
                "client_secret_env": "OF_THE_CLIENT",
                "public_url": "https://ui.example",
            }
        },
    }
)
SECRETS = {
    *(provider.key_env for provider in load_providers()),
    *("OPENAI_API_KEY_2", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AZURE_CLIENT_SECRET", "HF_TOKEN", "PGPASSWORD"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "BREAKEVEN_PEPPER", "BREAKEVEN_DATABASE_URL", "BREAKEVEN_REDIS_URL"),
    *("MINE", "TEAM_A", "TEAM_B", "OF_THE_CLIENT", "OTEL_EXPORTER_OTLP_HEADERS", "BREAKEVEN_NOTICES_WEBHOOK"),
    "LITELLM_DATABASE_URL",
}
HARMLESS = {
    *(
        "PATH",
        "HOME",
        "LANG",
        "BREAKEVEN_HOME",
        "PIP_INDEX_URL",
        "HTTPS_PROXY",
        "SSL_CERT_FILE",
        "CUDA_VISIBLE_DEVICES",
    ),
    *("TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS", "PYTHONPATH", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "PGHOST"),
}
ENVIRONMENT = dict.fromkeys(SECRETS | HARMLESS, "x")


def test_all_secrets_are_known_and_nothing_that_a_child_runs_by() -> None:
    assert secrets_in(SETTINGS, ENVIRONMENT) == SECRETS


def test_the_writer_keeps_what_its_databases_driver_reads() -> None:
    assert writer_environment(SETTINGS, ENVIRONMENT).keys() == HARMLESS | {"PGPASSWORD"}


def test_no_child_of_serve_inherits_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "x")
    children = plan_children(Home(tmp_path), SETTINGS, host="127.0.0.1", port=0, with_ui=True)
    names = [child.name for child in children.supervisors]
    assert names == ["web UI", "engine"]
    assert all(child.withheld >= SECRETS for child in children.supervisors)
