"""Where the gateway under test is, and what its model always says."""

from dataclasses import dataclass

from pydantic import BaseModel

TEXT = "Paris is the capital of France."
QUESTION = "What is the capital of France?"
MESSAGES = [{"role": "user", "content": QUESTION}]


class City(BaseModel):
    """A city."""

    name: str
    population: int


@dataclass(frozen=True, slots=True)
class Gateway:
    """`poor_key` has a budget that no request fits into."""

    url: str
    key: str
    owner_key: str
    poor_key: str
    model: str

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"
