"""`/admin/v1/rules`: versions, validation, diff, replay before saving, activation and roll-back."""
# pyright: reportUnusedFunction=false

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from gateway.api.admin.guard import Caller, needs
from gateway.errors import ConfigurationError, InvalidRequest
from gateway.instants import microseconds
from gateway.moments import Moment
from gateway.reports.replay_views import Replay, ReplayResult
from gateway.routing.rules import RulesDocument, rules_json_schema
from gateway.rulebook.service import Problem, RulesService
from gateway.rulebook.versions import Activation, StoredRules, text_diff
from gateway.strict import Strict

MAX_TEXT = 1_000_000


class RulesVersion(BaseModel):
    """One stored version. `text` is null in lists."""

    version: str
    author: str
    reason: str
    created_at_us: int
    is_active: bool
    text: str | None = None


class RulesList(BaseModel):
    """`applied` is the version that this process uses. It differs from `active` for less than a second after a change,
    or if `problem` says that the active version is not valid here."""

    active: str | None
    applied: str | None
    problem: Problem | None
    versions: list[RulesVersion]
    activations: Sequence[Activation]


class RulesText(Strict):
    text: str = Field(max_length=MAX_TEXT)


Version = Annotated[str, Field(max_length=64)]


class NewRules(RulesText):
    """`expected_active` is the version that the edit is based on. 409 if another one has become active since."""

    expected_active: Version | None
    reason: str = Field(default="", max_length=500)
    activate: bool = False


class Change(Strict):
    expected_active: Version | None
    reason: str = Field(default="", max_length=500)


class Checked(BaseModel):
    is_valid: bool
    problems: list[Problem]


class Diff(BaseModel):
    """A unified diff; empty when the two texts are the same."""

    old: str
    new: str
    diff: str


class ReplayRequest(RulesText):
    """A rules text to replay logged traffic with. Default period: the last seven days."""

    since: Moment | None = None
    until: Moment | None = None


def build_rules_router(rules: RulesService, replay: Replay) -> APIRouter:
    """The paths below `/rules`."""
    router = APIRouter(prefix="/rules", tags=["admin: rules"])
    _add_listing(router, rules)
    _add_checks_of_texts(router, rules, replay)
    _add_versions(router, rules)  # last: `/{version}` would take every other path
    return router


def _add_listing(router: APIRouter, rules: RulesService) -> None:
    @router.get("", openapi_extra=needs("rules.read"))
    async def list_rules() -> RulesList:
        """All versions, newest first, and every activation."""
        active = await rules.active()
        return RulesList(
            active=active,
            applied=rules.applied,
            problem=rules.problem,
            versions=[_version(one, active, with_text=False) for one in await rules.versions()],
            activations=await rules.activations(),
        )

    @router.put("", openapi_extra=needs("rules.write"))
    async def put_rules(new: NewRules, caller: Caller) -> RulesVersion:
        """Store a text as a new version, and activate it if asked to. 409 if another became active meanwhile."""
        await _require_valid(rules, new.text)
        stored = await rules.put(new.text, author=caller.name, reason=new.reason, expected_active=new.expected_active)
        if new.activate and stored.version != new.expected_active:
            await rules.activate(
                stored.version, author=caller.name, reason=new.reason, expected_active=new.expected_active
            )
        return _version(stored, await rules.active(), with_text=True)


def _add_checks_of_texts(router: APIRouter, rules: RulesService, replay: Replay) -> None:
    @router.post("/validate", openapi_extra=needs("rules.read"))
    async def validate(text: RulesText) -> Checked:
        """Check a rules text; the answer lists its problems with their lines."""
        problems = await rules.check(text.text)
        return Checked(is_valid=not problems, problems=problems)

    @router.post("/replay", openapi_extra=needs("rules.read"))
    async def replay_rules(asked: ReplayRequest) -> ReplayResult:
        """What a rules text would have done with logged traffic. Nothing is saved."""
        document = await _require_valid(rules, asked.text)
        return await replay(document, microseconds(asked.since), microseconds(asked.until))

    @router.post("/diff", openapi_extra=needs("rules.read"))
    async def diff_text(text: RulesText) -> Diff:
        """Compare a text with the active version."""
        active = await rules.active()
        old = (await rules.get(active)).text if active else ""
        return Diff(old=active or "", new="(edited)", diff=text_diff(old, text.text, active or "nothing", "edited"))

    @router.get("/diff", openapi_extra=needs("rules.read"))
    async def diff_versions(old: str = Query(max_length=64), new: str = Query(max_length=64)) -> Diff:
        """Compare two versions."""
        before, after = await rules.get(old), await rules.get(new)
        return Diff(old=old, new=new, diff=text_diff(before.text, after.text, old, new))

    @router.get("/schema", openapi_extra=needs("rules.read"))
    async def schema() -> dict[str, object]:
        """The JSON schema of a rules file, for editors."""
        return rules_json_schema()


def _add_versions(router: APIRouter, rules: RulesService) -> None:
    @router.post("/rollback", openapi_extra=needs("rules.write"))
    async def roll_back(change: Change, caller: Caller) -> Activation:
        """Activate the version that was active before."""
        return await rules.roll_back(author=caller.name, reason=change.reason, expected_active=change.expected_active)

    @router.get("/{version}", openapi_extra=needs("rules.read"))
    async def get_rules(version: str) -> RulesVersion:
        """One version with its text; the name `active` means the active one."""
        active = await rules.active()
        return _version(await rules.get(active or "" if version == ACTIVE else version), active, with_text=True)

    @router.post("/{version}/activate", openapi_extra=needs("rules.write"))
    async def activate(version: str, change: Change, caller: Caller) -> Activation:
        """Activate a version. 409 if the active one is no longer `expected_active`."""
        await _require_valid(rules, (await rules.get(version)).text)
        return await rules.activate(
            version, author=caller.name, reason=change.reason, expected_active=change.expected_active
        )


ACTIVE: Literal["active"] = "active"


async def _require_valid(rules: RulesService, text: str) -> RulesDocument:
    try:
        return await rules.parse(text)
    except ConfigurationError as error:
        parts = (f"line {error.line}" if error.line else "", error.field, error.problem)
        said = ": ".join(part for part in parts if part)
        raise InvalidRequest(said, param="text", code="invalid_rules") from error


def _version(rules: StoredRules, active: str | None, *, with_text: bool) -> RulesVersion:
    return RulesVersion(
        version=rules.version,
        author=rules.author,
        reason=rules.reason,
        created_at_us=rules.created_at_us,
        is_active=rules.version == active,
        text=rules.text if with_text else None,
    )
