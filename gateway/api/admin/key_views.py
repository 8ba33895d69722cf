"""Keys in the admin API: request bodies to create and change them, and how they are listed."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Literal, cast

import msgspec
from pydantic import AfterValidator, BaseModel, Field, WithJsonSchema, field_validator

from gateway.access.keys import KeyRecord, Role
from gateway.access.rotation import DEFAULT_OVERLAP_SECONDS, MOST_OVERLAP_SECONDS, OldSecret, Rotation
from gateway.instants import DAY_US, LAST_US, moment_of
from gateway.limits.values import Limits, new_limits
from gateway.stores import LAST_DAYS, KeyChange, ListedKey, NewKey
from gateway.strict import Strict
from gateway.yaml_document import LABEL_PATTERN

Name = Annotated[str, Field(max_length=200)]
Label = Annotated[str, Field(min_length=1, max_length=64, pattern=LABEL_PATTERN)]

NULL = {"type": "null"}


def _limits_schema() -> dict[str, Any]:
    """References are inlined, since FastAPI's document has no place for msgspec's definitions. Each field may be null,
    which is the same as leaving it out."""
    definitions = msgspec.json.schema(Limits)["$defs"]

    def inline(part: Any) -> Any:
        if isinstance(part, list):
            return [inline(one) for one in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return inline(definitions[part["$ref"].rpartition("/")[2]])
        return {name: inline(one) for name, one in part.items()}

    def or_null(part: dict[str, Any]) -> dict[str, Any]:
        return part if NULL in part.get("anyOf", ()) else {"anyOf": [part, NULL]}

    limits = inline(definitions["Limits"])
    return limits | {"properties": {name: or_null(one) for name, one in limits["properties"].items()}}


StoredLimits = Annotated[dict[str, Any], WithJsonSchema(_limits_schema())]
"""Documented by the type with which admission parses limits."""
KeyLimits = Annotated[StoredLimits, AfterValidator(new_limits)]


class CreateKey(Strict):
    """A new key. Reports show its cost under its team and project."""

    name: Label
    role: Role = "app"
    team: Label | None = None
    project: Label | None = None
    tags: list[Label] = Field(default_factory=list[str], max_length=16)
    allowed_models: list[Name] | None = Field(default=None, max_length=200)
    expires_at_us: int | None = Field(default=None, ge=0, le=LAST_US)
    limits: KeyLimits = Field(default_factory=dict[str, Any])
    keeps_bodies: bool = Field(default=False, description="Store its prompts and answers, encrypted; see `retention`")

    def new_key(self) -> NewKey:
        allowed = tuple(self.allowed_models) if self.allowed_models is not None else None
        return NewKey(
            self.name,
            self.role,
            self.team,
            self.project,
            tuple(self.tags),
            allowed,
            self.expires_at_us,
            self.keeps_bodies,
        )


class ChangeKey(Strict):
    """Fields to change; those left out stay. null removes a value: no team or project, all models, no expiry."""

    name: Label | None = None
    team: Label | None = None
    project: Label | None = None
    tags: list[Label] | None = Field(default=None, max_length=16)
    allowed_models: list[Name] | None = Field(default=None, max_length=200)
    expires_at_us: int | None = Field(default=None, ge=0, le=LAST_US)
    limits: KeyLimits | None = Field(default=None, description="Replaces all limits; those left out no longer apply")

    @field_validator("name")
    @classmethod
    def _needs_name(cls, given: str | None) -> str:
        if given is None:
            raise ValueError("a key needs a name; leave `name` out to keep the current one")
        return given

    def change(self) -> KeyChange:
        """Only the fields that were given."""
        given: dict[str, Any] = {name: getattr(self, name) for name in self.model_fields_set}
        empty = {"tags": [], "limits": {}}
        return cast("KeyChange", given | {name: given[name] or none for name, none in empty.items() if name in given})


class NewLimits(Strict):
    """All limits of a key; those left out no longer apply."""

    limits: KeyLimits


class Key(BaseModel):
    id: str
    name: str
    role: Role
    team: str | None
    project: str | None
    tags: list[str]
    allowed_models: list[str] | None
    created_at_us: int
    expires_at_us: int | None
    revoked_at_us: int | None
    limits: StoredLimits
    keeps_bodies: bool
    rotated_at_us: int | None
    old_secrets: Sequence[OldSecret]
    taken_over_from: Literal["LiteLLM"] | None = Field(description="Where it was imported from")
    last_request_on: date | None = Field(
        description=f"The last day (UTC) on which it called a model; null: not in the last {LAST_DAYS} days"
    )


class CreatedKey(Key):
    """`key` is the secret, shown only this once."""

    key: str


class RotateKey(Strict):
    """How long the key's older secrets keep working beside the new one; at 0 they end at once."""

    overlap_seconds: int = Field(default=DEFAULT_OVERLAP_SECONDS, ge=0, le=MOST_OVERLAP_SECONDS)


class KeysWanted(BaseModel):
    """Which keys to return, newest first; all by default."""

    ids: list[str] | None = Field(default=None, alias="id", max_length=500)
    find: str = Field(
        default="", max_length=200, description="Words that all occur in a key's name, id, role, team, project or tags"
    )
    limit: int | None = Field(default=None, ge=0, le=1000)
    offset: int = Field(default=0, ge=0)
    last_requests: bool = Field(default=True, description="`false` is faster: `last_request_on` is then null")

    def matches(self, key: KeyRecord) -> bool:
        """Whether every word of `find` occurs in one of the key's fields."""
        parts = (key.name, key.id, key.role, key.team or "", key.project or "", *key.tags)
        text = "\n".join(parts).casefold()
        return all(word in text for word in self.find.casefold().split())

    @property
    def place(self) -> slice:
        return slice(self.offset, None if self.limit is None else self.offset + self.limit)


class KeyList(BaseModel):
    """`matching` is the number of keys that match, those on other pages included."""

    keys: list[Key]
    matching: int


class Me(BaseModel):
    """The caller's own key and what its role allows."""

    id: str
    name: str
    role: Role
    team: str | None
    permissions: list[str]


def key_fields(
    listed: ListedKey,
    limits: Mapping[str, Any],
    rotation: Rotation | None = None,
    last_day: int | None = None,
    *,
    was_litellms: bool = False,
) -> dict[str, object]:
    """The fields of `Key`. `last_day` counts days since the epoch."""
    record = listed.record
    return {
        "id": record.id,
        "name": record.name,
        "role": record.role,
        "team": record.team,
        "project": record.project,
        "tags": list(record.tags),
        "allowed_models": sorted(record.allowed_models) if record.allowed_models is not None else None,
        "created_at_us": listed.created_at_us,
        "expires_at_us": record.expires_at_us,
        "revoked_at_us": record.revoked_at_us,
        "limits": dict(limits),
        "keeps_bodies": record.keeps_bodies,
        "rotated_at_us": None if rotation is None else rotation.rotated_at_us,
        "old_secrets": () if rotation is None else rotation.working,
        "taken_over_from": "LiteLLM" if was_litellms else None,
        "last_request_on": None if last_day is None else moment_of(last_day * DAY_US).date(),
    }
