"""Every column of LiteLLM's tables of keys and teams (1.106), and what becomes of it here. Facts only."""

from collections.abc import Mapping
from typing import Final

DATABASE_VARIABLE: Final = "LITELLM_DATABASE_URL"
"""The variable with the address of LiteLLM's database, which contains a password."""
KEYS: Final = "LiteLLM_VerificationToken"
TEAMS: Final = "LiteLLM_TeamTable"
BUDGETS: Final = "LiteLLM_BudgetTable"
PROJECTS: Final = "LiteLLM_ProjectTable"
ORGANIZATIONS: Final = "LiteLLM_OrganizationTable"
USERS: Final = "LiteLLM_UserTable"
MEMBERSHIPS: Final = "LiteLLM_TeamMembership"
ACCESS_GROUPS: Final = "LiteLLM_AccessGroupTable"
OLD_SECRETS: Final = "LiteLLM_DeprecatedVerificationToken"
TABLES: Final = (
    KEYS, TEAMS, BUDGETS, PROJECTS, ORGANIZATIONS, USERS, MEMBERSHIPS, ACCESS_GROUPS, OLD_SECRETS,
)  # fmt: skip

PER_MODEL: Final = "keys and teams have no budgets and rates of single models here; `limits: {models: ...}` has rates"
NO_PLACE: Final = "has no counterpart here"
TOLD: Final[Mapping[str, str]] = {
    "tpd_limit": "tokens a day have no limit here; a budget by the day does for them",
    "model_max_budget": PER_MODEL,
    "budget_limits": "one budget for each key and team: others beside max_budget have no counterpart here",
    "budget_fallbacks": "a key whose budget is spent is refused; a rule can send its models elsewhere before",
    "soft_budget": "budgets are told of at 80, 95 and 100 %, see `notices:`",
    "aliases": "a rule can give a name another model (`when: {key: ...}`)",
    "model_id": "aliases of a team's models: a rule can give a name another model (`when: {team: ...}`)",
    "router_settings": "retries and fallbacks are the deployment's",
    "auto_rotate": "nothing rotates by itself: `breakeven keys rotate`",
    "rotation_interval": "nothing rotates by itself: `breakeven keys rotate`",
    "policies": "there are no policies",
    "object_permission_id": "tools, vector stores and agents of a gateway have no counterpart here",
    "agent_id": "a key belongs to no agent here; a tag can say it",
    "members_with_roles": "people sign in by OpenID Connect; a lead's key reads what its team spends",
    "model_rpm_limit": PER_MODEL,
    "model_tpm_limit": PER_MODEL,
    "guardrails": "there are none",
}
"""Why a column has no counterpart, for rows in which it is set."""
TAKEN: Final[Mapping[str, frozenset[str]]] = {
    KEYS: frozenset(
        {
            "token", "key_alias", "key_name", "spend", "expires", "models", "user_id", "team_id", "project_id",
            "max_parallel_requests", "metadata", "blocked", "tpm_limit", "rpm_limit", "max_budget", "budget_duration",
            "budget_reset_at", "allowed_routes", "access_group_ids", "budget_id", "organization_id",
        }
    ),
    TEAMS: frozenset(
        {
            "team_id", "team_alias", "metadata", "max_budget", "spend", "models", "max_parallel_requests", "tpm_limit",
            "rpm_limit", "budget_duration", "budget_reset_at", "blocked", "access_group_ids", "organization_id",
        }
    ),
    PROJECTS: frozenset(
        {"project_id", "project_alias", "team_id", "budget_id", "metadata", "models", "spend", "blocked"}
    ),
}  # fmt: skip
FACTS: Final[Mapping[str, frozenset[str]]] = {
    KEYS: frozenset(
        {
            "soft_budget_cooldown", "total_spend", "model_spend", "created_at", "created_by", "updated_at",
            "updated_by", "settings_updated_at", "last_active", "rotation_count", "last_rotation_at",
            "key_rotation_at", "key_type",
        }
    ),
    TEAMS: frozenset({"admins", "members", "created_at", "updated_at", "model_spend"}),
    PROJECTS: frozenset({"description", "model_spend", "created_at", "created_by", "updated_at", "updated_by"}),
}  # fmt: skip
"""Bookkeeping of LiteLLM's, which needs no counterpart. Every other column is reported if it is set."""
