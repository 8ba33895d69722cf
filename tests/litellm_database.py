"""A database like that of LiteLLM's proxy: the columns of its schema 1.106.2 that are imported, and a few that are not.
tests/unit/gateway/from_litellm/test_fields.py compares them with LiteLLM itself."""

import hashlib
import json
from datetime import datetime
from typing import Any

import asyncpg

SCHEMA = "litellm"
TABLES = """
DROP SCHEMA IF EXISTS litellm CASCADE;
CREATE SCHEMA litellm;
SET search_path TO litellm;
CREATE TABLE "LiteLLM_BudgetTable" (
  "budget_id" TEXT PRIMARY KEY, "max_budget" DOUBLE PRECISION, "soft_budget" DOUBLE PRECISION,
  "max_parallel_requests" INTEGER, "tpm_limit" BIGINT, "rpm_limit" BIGINT, "model_max_budget" JSONB,
  "budget_duration" TEXT, "budget_reset_at" TIMESTAMP(3)
);
CREATE TABLE "LiteLLM_OrganizationTable" (
  "organization_id" TEXT PRIMARY KEY, "organization_alias" TEXT NOT NULL, "budget_id" TEXT
);
CREATE TABLE "LiteLLM_TeamTable" (
  "team_id" TEXT PRIMARY KEY, "team_alias" TEXT, "organization_id" TEXT, "metadata" JSONB NOT NULL DEFAULT '{}',
  "max_budget" DOUBLE PRECISION, "spend" DOUBLE PRECISION NOT NULL DEFAULT 0.0, "models" TEXT[],
  "max_parallel_requests" INTEGER, "tpm_limit" BIGINT, "rpm_limit" BIGINT, "budget_duration" TEXT,
  "budget_reset_at" TIMESTAMP(3), "blocked" BOOLEAN NOT NULL DEFAULT false,
  "access_group_ids" TEXT[] DEFAULT ARRAY[]::TEXT[]
);
CREATE TABLE "LiteLLM_ProjectTable" (
  "project_id" TEXT PRIMARY KEY, "project_alias" TEXT, "team_id" TEXT, "budget_id" TEXT, "models" TEXT[],
  "metadata" JSONB NOT NULL DEFAULT '{}', "spend" DOUBLE PRECISION NOT NULL DEFAULT 0.0,
  "blocked" BOOLEAN NOT NULL DEFAULT false
);
CREATE TABLE "LiteLLM_UserTable" (
  "user_id" TEXT PRIMARY KEY, "max_budget" DOUBLE PRECISION, "models" TEXT[], "tpm_limit" BIGINT, "rpm_limit" BIGINT
);
CREATE TABLE "LiteLLM_AccessGroupTable" (
  "access_group_id" TEXT PRIMARY KEY, "access_group_name" TEXT, "access_model_names" TEXT[] DEFAULT ARRAY[]::TEXT[]
);
CREATE TABLE "LiteLLM_VerificationToken" (
  "token" TEXT PRIMARY KEY, "key_name" TEXT, "key_alias" TEXT, "spend" DOUBLE PRECISION NOT NULL DEFAULT 0.0,
  "expires" TIMESTAMP(3), "models" TEXT[], "aliases" JSONB NOT NULL DEFAULT '{}', "user_id" TEXT, "team_id" TEXT,
  "project_id" TEXT, "permissions" JSONB NOT NULL DEFAULT '{}', "max_parallel_requests" INTEGER,
  "metadata" JSONB NOT NULL DEFAULT '{}', "blocked" BOOLEAN, "tpm_limit" BIGINT, "rpm_limit" BIGINT,
  "tpd_limit" BIGINT, "max_budget" DOUBLE PRECISION, "budget_duration" TEXT, "budget_reset_at" TIMESTAMP(3),
  "allowed_routes" TEXT[] DEFAULT ARRAY[]::TEXT[], "access_group_ids" TEXT[] DEFAULT ARRAY[]::TEXT[],
  "budget_id" TEXT, "organization_id" TEXT, "created_at" TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP
);
"""


def hash_token(secret: str) -> str:
    """Like `litellm.proxy._types.hash_token`."""
    return hashlib.sha256(secret.encode()).hexdigest()


class LiteLLMDatabase:
    """In a schema of its own next to ours, in the single database of the server with that socket directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.url = f"postgresql://postgres@/postgres?host={directory}&schema={SCHEMA}&connection_limit=5"

    async def make(self) -> None:
        await self.execute(TABLES)

    async def remove(self) -> None:
        await self.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")

    async def add(self, table: str, **columns: Any) -> None:
        names = ", ".join(f'"{name}"' for name in columns)
        places = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
        values = [json.dumps(one) if isinstance(one, dict) else one for one in columns.values()]
        await self.execute(f'INSERT INTO {SCHEMA}."{table}" ({names}) VALUES ({places})', *values)

    async def add_key(self, secret: str, **columns: Any) -> None:
        await self.add("LiteLLM_VerificationToken", token=hash_token(secret), **columns)

    async def change_key(self, secret: str, column: str, value: float | bool | datetime) -> None:
        query = f'UPDATE {SCHEMA}."LiteLLM_VerificationToken" SET "{column}" = $1 WHERE token = $2'
        await self.execute(query, value, hash_token(secret))

    async def execute(self, query: str, *values: Any) -> None:
        connection = await asyncpg.connect(host=self._directory, user="postgres", database="postgres")
        try:
            await connection.execute(query, *values)
        finally:
            await connection.close()
