"""The base of what comes from outside, over HTTP or from a file: an unknown field, as a misspelt one, is an error."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """No number is infinite, and values never change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
