"""Versions of the routing rules: validates, stores, activates, rolls back, follows the file, and applies the active
one.

All ways in (REST, web editor, rules.yaml) share the validation here. Activation is a compare-and-set in the store,
which every process polls through `refresh()`, so that it reaches all of them within one interval.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gateway.errors import ConfigurationError, Conflict, NotFound
from gateway.routing.rules import RulesDocument
from gateway.rulebook.versions import Activation, RulesStore, StoredRules, text_diff, text_version
from gateway.rulebook.watched_file import WatchedFile

log = logging.getLogger(__name__)
FILE_AUTHOR = "file"


class Validator(Protocol):
    """The catalogue: validates rules for this deployment."""

    def parse(self, text: str, *, file: str) -> RulesDocument: ...


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a rules text; `line` is 1-based."""

    message: str
    line: int | None
    field: str


class RulesService:
    """One per process. `apply` swaps the pipeline's snapshot; it is called with every newly active document.

    `taken_over` receives the seconds from an activation, made anywhere, until this process applied it.
    """

    def __init__(
        self,
        store: RulesStore,
        validator: Validator,
        apply: Callable[[RulesDocument, str], None],
        *,
        now_us: Callable[[], int],
        file: Path | None = None,
        taken_over: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._store = store
        self._validator = validator
        self._apply = apply
        self._now_us = now_us
        self._file = WatchedFile(file) if file is not None else None
        self._taken_over = taken_over
        self._refreshing = asyncio.Lock()
        self.applied: str | None = None
        self.refused: str | None = None
        """The active version if it is not valid here."""
        self._refusal: Problem | None = None
        self._file_problem: Problem | None = None
        self._parsed: tuple[str, RulesDocument] | None = None

    def warnings(self) -> list[str]:
        """Readable by everyone: sentences that quote nothing of the rules."""
        if self.problem is None:
            return []
        what = "rules.yaml is" if self._refusal is None else f"the active rules {self.refused} are"
        return [f"{what} not valid here; version {self.applied} stays in force"]

    @property
    def problem(self) -> Problem | None:
        """Why this process does not apply the active rules, or those of the file."""
        return self._refusal or self._file_problem

    async def parse(self, text: str, *, file: str = "rules.yaml") -> RulesDocument:
        """Raises ConfigurationError with file and line. Runs in a thread, since a thousand rules take a second, and
        keeps the last result, since each step from text to activation asks for it."""
        if self._parsed is None or self._parsed[0] != text:
            self._parsed = text, await asyncio.to_thread(self._validator.parse, text, file=file)
        return self._parsed[1]

    async def check(self, text: str) -> list[Problem]:
        """The first problem of a text; empty if it is valid."""
        try:
            await self.parse(text)
        except ConfigurationError as error:
            return [problem_of(error)]
        return []

    async def versions(self) -> Sequence[StoredRules]:
        """Newest first."""
        return await self._store.versions()

    async def activations(self) -> Sequence[Activation]:
        """Newest first."""
        return await self._store.activations()

    async def active(self) -> str | None:
        """The active version in the store, whatever this process has applied so far."""
        return await self._store.active()

    async def get(self, version: str) -> StoredRules:
        """Raises NotFound."""
        found = await self._store.get(version)
        if found is None:
            raise NotFound(
                f"There is no rules version {version[:64]!r}; `breakeven rules list` shows the existing ones.",
                code="rules_version_not_found",
            )
        return found

    async def put(self, text: str, *, author: str, reason: str, expected_active: str | None) -> StoredRules:
        """Stores a valid text as a version. Raises ConfigurationError, or Conflict if another version is active."""
        await self.parse(text)
        active = await self._store.active()
        if active != expected_active:
            raise _lost(expected_active, active)
        rules = StoredRules(text_version(text), text, author, reason, self._now_us())
        await self._store.put(rules)
        return await self.get(rules.version)

    async def activate(self, version: str, *, author: str, reason: str, expected_active: str | None) -> Activation:
        """Activates a version for all processes. Raises NotFound, ConfigurationError or Conflict."""
        rules = await self.get(version)
        await self.parse(rules.text)  # models it names may have gone since it was stored
        activation = Activation(version, expected_active, author, reason, self._now_us())
        before = await self._store.get(expected_active) if expected_active else None
        changed = text_diff(before.text if before else "", rules.text, expected_active or "nothing", version)
        if not await self._store.activate(activation, diff=changed):
            raise _lost(expected_active, await self._store.active())
        await self.refresh()
        return activation

    async def roll_back(self, *, author: str, reason: str, expected_active: str | None) -> Activation:
        """Activates the version before the current one. Raises NotFound if there is none."""
        previous = next(
            (one.previous for one in await self._store.activations() if one.version == expected_active), None
        )
        if previous is None:
            raise NotFound("There is no earlier version to roll back to.", code="nothing_to_roll_back")
        return await self.activate(
            previous, author=author, reason=reason or "rolled back", expected_active=expected_active
        )

    async def refresh(self) -> None:
        """Applies a changed file and the store's active version; invalid rules change nothing."""
        async with self._refreshing:  # an earlier reading of the store must not be applied later
            await self._refresh()

    async def _refresh(self) -> None:
        await self._follow_file()
        version = await self._store.active()
        if version is None or version == self.applied:
            self.refused = self._refusal = None
            return
        rules = await self.get(version)
        try:
            document = await self.parse(rules.text)
        except ConfigurationError as error:
            consequence = f"the active version {version} is not valid here; {self.applied} stays"
            self.refused, self._refusal = version, _told(problem_of(error), consequence, before=self._refusal)
            return
        self._apply(document, version)
        self.refused = self._refusal = None
        was_running, self.applied, now_us = self.applied is not None, version, self._now_us()
        log.info("rules version %s by %s is active", version, rules.author)
        latest = next(iter(await self._store.activations()), None)
        if was_running and latest is not None and latest.version == version:
            self._taken_over(max(0.0, (now_us - latest.at_us) / 1e6))

    async def _follow_file(self) -> None:
        """A rules.yaml with new content becomes a version and is activated, unless it is invalid."""
        if self._file is None:
            return
        consequence = f"{self._file.path} is not valid; the last good version stays"
        try:
            text = self._file.text_if_touched()
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            self._file_problem = _told(Problem("is not UTF-8 text", line, ""), consequence, before=self._file_problem)
            return
        if text is None:
            return
        if text_version(text) == self._file.taken():
            self._end_look()
            return
        try:
            await self.parse(text)
        except ConfigurationError as error:
            self._file.end_look()
            self._file_problem = _told(problem_of(error), consequence, before=self._file_problem)
            return
        version, active = text_version(text), await self._store.active()
        is_news = version != active and not await self._is_old(version)
        if is_news:
            rules = StoredRules(version, text, FILE_AUTHOR, f"{self._file.path.name} changed", self._now_us())
            await self._store.put(rules)
            before = await self._store.get(active) if active else None
            changed = text_diff(before.text if before else "", text, active or "nothing", version)
            activation = Activation(version, active, FILE_AUTHOR, rules.reason, rules.created_at_us)
            if not await self._store.activate(activation, diff=changed):
                return  # another process was first: look again next time
        self._end_look()
        self._file.remember(text)

    def _end_look(self) -> None:
        """For a valid file, which may have been invalid before."""
        assert self._file is not None
        self._file.end_look()
        if self._file_problem is not None:
            log.info("%s is valid again, and its changes are applied again", self._file.path)
            self._file_problem = None

    async def _is_old(self, version: str) -> bool:
        """Whether others took this file over long ago, or this process did and was killed before it could note so, and
        something else was activated since: it must not undo later edits."""
        assert self._file is not None
        taken = self._file.taken()
        for one in await self._store.activations():
            if one.version == taken:
                return False
            if one.version == version and (taken is None or one.author == FILE_AUTHOR):
                return True
        return False


def problem_of(error: ConfigurationError) -> Problem:
    """The error without its file name, which a web editor does not have."""
    return Problem(error.problem, error.line, error.field)


def _told(problem: Problem, consequence: str, *, before: Problem | None) -> Problem:
    """Logs a problem once."""
    if problem != before:
        where = [f"line {problem.line}"] if problem.line is not None else []
        log.error("%s: %s", consequence, ": ".join([*where, *filter(None, (problem.field, problem.message))]))
    return problem


def _lost(expected: str | None, active: str | None) -> Conflict:
    return Conflict(
        f"The active rules are now {active or 'none'}, not {expected or 'none'}: look at what changed, then try again.",
        code="rules_changed_meanwhile",
    )
