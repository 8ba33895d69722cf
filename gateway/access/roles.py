"""One table from role to permissions. Whatever is not listed is denied."""

from collections.abc import Mapping
from typing import Literal

from gateway.access.keys import Role
from gateway.errors import InvalidRequest

Permission = Literal[
    "self.read",  # who am I
    "team.read",  # of its own team only: sums by any dimension, single requests, budgets and keys
    "reports.read",  # sums: costs, overview, break-even
    "catalogue.read",  # models and prices
    "operations.read",  # backends, breakers, engine
    "rules.read",
    "entries.read",  # single requests without their text
    "keys.read",
    "audit.read",
    "budgets.write",  # monthly budgets, also those that stop requests
    "rules.write",  # put, activate, roll back
    "batches.write",  # cancel batches of any team
    "keys.write",  # create, change and revoke
    "bodies.read",  # the stored text of single requests
]

LEAD: frozenset[Permission] = frozenset({"self.read", "team.read", "catalogue.read"})
VIEWER: frozenset[Permission] = frozenset(
    {"self.read", "reports.read", "catalogue.read", "operations.read", "rules.read"}
)
FINANCE = VIEWER | frozenset[Permission]({"entries.read", "keys.read", "audit.read", "budgets.write"})
EDITOR = FINANCE | frozenset[Permission]({"rules.write", "batches.write"})
OWNER = EDITOR | frozenset[Permission]({"keys.write", "bodies.read"})

PERMISSIONS: Mapping[Role, frozenset[Permission]] = {
    "app": frozenset(),  # calls models, and sees its own requests under /v1
    "lead": LEAD,
    "viewer": VIEWER,
    "finance": FINANCE,
    "editor": EDITOR,
    "owner": OWNER,
}


def may(role: Role, permission: object) -> bool:
    """Whether the role has the permission. Unknown permissions belong to no role."""
    return permission in PERMISSIONS.get(role, frozenset())


def require_team(role: Role, team: str | None) -> None:
    """Raises InvalidRequest for a lead without a team."""
    if role == "lead" and team is None:
        raise InvalidRequest("A key of the role 'lead' reads what its team spends: name the team.", param="team")
