"""Where the gateway under test is, and what its model always says."""

from dataclasses import dataclass

import httpx

TEXT = "Paris is the capital of France."
MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]


@dataclass(frozen=True, slots=True)
class Gateway:
    """`poor_key` has a budget that no request fits into."""

    url: str
    provider_url: str
    key: str
    owner_key: str
    poor_key: str
    model: str

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def provider_calls(self) -> int:
        """How many requests reached the provider so far, over all its paths."""
        return sum(httpx.get(f"{self.provider_url}/calls", timeout=300).json().values())
