"""litellm's and genai-prices' own cost functions, run in a separate process, since importing them is slow and warns.

`python -m tests.unit.gateway.pricing.oracles < cases.json > costs.json`. A case is [package, provider, model, usage];
a cost is dollars as text, or null if the package does not know the model.
"""

import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def ask_litellm(provider: str, model: str, usage: Mapping[str, Any]) -> str | None:
    from litellm.cost_calculator import cost_per_token
    from litellm.types.utils import Usage

    written = usage["cache_write_5m_tokens"] + usage["cache_write_1h_tokens"]
    details: dict[str, Any] = {"cached_tokens": usage["cached_input_tokens"]}
    more: dict[str, Any] = {}
    if usage["cached_input_tokens"]:
        more["cache_read_input_tokens"] = usage["cached_input_tokens"]
    if written:
        more["cache_creation_input_tokens"] = details["cache_creation_tokens"] = written
        details["cache_creation_token_details"] = {
            "ephemeral_5m_input_tokens": usage["cache_write_5m_tokens"],
            "ephemeral_1h_input_tokens": usage["cache_write_1h_tokens"],
        }
    theirs = Usage(
        prompt_tokens=usage["input_tokens"],
        completion_tokens=usage["output_tokens"],
        total_tokens=usage["input_tokens"] + usage["output_tokens"],
        prompt_tokens_details=details,
        completion_tokens_details={"reasoning_tokens": usage["reasoning_tokens"]},
        **more,
    )
    tier = usage["service_tier"]
    costs = cost_per_token(model=model, custom_llm_provider=provider, usage_object=theirs, service_tier=tier)
    return repr(sum(costs))


def ask_genai_prices(provider: str, model: str, usage: Mapping[str, Any]) -> str | None:
    from genai_prices import Usage, calc_price

    theirs = Usage(
        input_tokens=usage["input_tokens"],
        cache_read_tokens=usage["cached_input_tokens"],
        cache_write_tokens=usage["cache_write_5m_tokens"] + usage["cache_write_1h_tokens"],
        cache_write_1h_tokens=usage["cache_write_1h_tokens"],
        output_tokens=usage["output_tokens"],
        output_reasoning_tokens=usage["reasoning_tokens"],
    )
    try:
        return str(calc_price(theirs, model, provider_id=provider, genai_request_timestamp=AT).total_price)
    except LookupError:
        return None


ORACLES = {"litellm": ask_litellm, "genai-prices": ask_genai_prices}


def main() -> None:
    cases: list[tuple[str, str, str, dict[str, Any]]] = json.load(sys.stdin)
    costs = [ORACLES[package](provider, model, usage) for package, provider, model, usage in cases]
    sys.__stdout__.write(json.dumps(costs))  # pyright: ignore[reportOptionalMemberAccess]


if __name__ == "__main__":
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    main()
