"""Versions, compare-and-set, the watched file: through the store's protocol, with the real validation."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from gateway.errors import ConfigurationError, Conflict, DatabaseDown, NotFound
from gateway.routing.rules import RulesDocument
from gateway.rulebook.service import RulesService
from gateway.rulebook.versions import StoredRules, text_version
from tests.unit.gateway.api.fakes import FIRST_RULES, OTHER_RULES, AdminRig, catalogue
from tests.unit.gateway.api.memory_stores import MemoryRules

BROKEN = FIRST_RULES.replace("choose:", "chose:")
FIRST, OTHER = text_version(FIRST_RULES), text_version(OTHER_RULES)


class FullRules(MemoryRules):
    """Readable but not writable, like a database on a full disk."""

    async def put(self, rules: StoredRules) -> None:
        raise DatabaseDown("database or disk is full")


def rewrite(file: Path, text: str) -> None:
    file.write_text(text)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(FIRST_RULES)
    return path


@pytest.fixture
async def rig(file: Path) -> AdminRig:
    made = AdminRig(file)
    await made.rules.refresh()
    return made


async def edit(rig: AdminRig, before: str = FIRST) -> None:
    """Changes the rules to OTHER, in the web UI."""
    await rig.rules.put(OTHER_RULES, author="ann", reason="", expected_active=before)
    await rig.rules.activate(OTHER, author="ann", reason="", expected_active=before)


async def test_the_file_becomes_the_first_active_version(rig: AdminRig, file: Path) -> None:
    assert await rig.rules.active() == rig.rules.applied == FIRST
    assert (await rig.rules.get(FIRST)).author == "file"
    assert [version for _, version in rig.applied] == [FIRST]


class Reader:
    """Parses rules like the catalogue, and records in which threads."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def parse(self, text: str, *, file: str) -> RulesDocument:
        self.threads.append(threading.get_ident())
        return catalogue().parse(text, file=file)


async def test_an_edit_is_read_once_and_never_where_requests_are_served() -> None:
    reader, store, applied = Reader(), MemoryRules(), list[str]()
    service = RulesService(store, reader, lambda _, version: applied.append(version), now_us=lambda: 1)
    assert await service.check(FIRST_RULES) == []
    await service.put(FIRST_RULES, author="ann", reason="", expected_active=None)
    await service.activate(FIRST, author="ann", reason="", expected_active=None)
    assert applied == [FIRST]
    assert len(reader.threads) == 1
    assert reader.threads[0] != threading.get_ident()
    assert [one.line for one in await service.check(BROKEN)] == [4]
    assert [one.line for one in await service.check(BROKEN)] == [4], "what is wrong stays so"


async def test_refreshing_again_applies_nothing_twice(rig: AdminRig) -> None:
    await rig.rules.refresh()
    assert len(rig.applied) == len(rig.rules_store.log) == 1


async def test_an_edit_of_the_file_is_activated_with_its_diff(rig: AdminRig, file: Path) -> None:
    rewrite(file, OTHER_RULES)
    await rig.rules.refresh()
    assert rig.rules.applied == OTHER
    assert "+    choose: {from: [large], by: order}" in rig.rules_store.diffs[-1]


async def test_a_broken_file_keeps_the_last_good_version_and_says_why(
    rig: AdminRig, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rewrite(file, BROKEN)
    await rig.rules.refresh()
    assert "the last good version stays: line 4: rules.0." in caplog.text
    assert rig.rules.applied == FIRST
    assert rig.rules.problem is not None
    assert rig.rules.problem.line == 4
    assert rig.rules.warnings() == [f"rules.yaml is not valid here; version {FIRST} stays in force"]


@pytest.mark.parametrize(("text", "version"), [(FIRST_RULES, FIRST), (OTHER_RULES, OTHER)])
async def test_a_mended_file_is_told_of_once(
    rig: AdminRig, file: Path, caplog: pytest.LogCaptureFixture, text: str, version: str
) -> None:
    """Also if the edit is undone, so that no other version comes into force."""
    caplog.set_level("INFO")
    rewrite(file, BROKEN)
    await rig.rules.refresh()
    assert "valid again" not in caplog.text
    rewrite(file, text)
    for _ in range(3):
        await rig.rules.refresh()
    assert (rig.rules.applied, rig.rules.problem, rig.rules.warnings()) == (version, None, [])
    assert caplog.text.count(f"{file} is valid again, and its changes are applied again") == 1


async def test_a_new_replica_with_the_old_file_does_not_undo_a_web_edit(rig: AdminRig, file: Path) -> None:
    await edit(rig)
    file.with_suffix(".taken").unlink()
    replica = AdminRig(file)
    replica.rules_store.stored, replica.rules_store.log = rig.rules_store.stored, rig.rules_store.log
    await replica.rules.refresh()
    assert replica.rules.applied == OTHER
    rewrite(file, FIRST_RULES + "\n# edited here\n")
    await replica.rules.refresh()
    assert replica.rules.applied == text_version(FIRST_RULES + "\n# edited here\n"), "its own edits count"


async def test_a_restart_does_not_undo_a_web_edit(rig: AdminRig, file: Path) -> None:
    await edit(rig)
    again = AdminRig(file)
    again.rules_store.stored, again.rules_store.log = rig.rules_store.stored, rig.rules_store.log
    again.rules._store = again.rules_store  # pyright: ignore[reportPrivateUsage]
    await again.rules.refresh()
    assert again.rules.applied == OTHER


async def test_who_is_killed_before_noting_what_was_taken_over_undoes_no_later_edit(rig: AdminRig, file: Path) -> None:
    memory = file.with_suffix(".taken")
    noted, saved = memory.read_text(), FIRST_RULES + "\n# saved just before\n"
    rewrite(file, saved)
    await rig.rules.refresh()
    memory.write_text(noted)  # as it is where the process ended between the two
    await edit(rig, text_version(saved))
    again = AdminRig(file)
    again.rules._store = again.rules_store = rig.rules_store  # pyright: ignore[reportPrivateUsage]
    await again.rules.refresh()
    assert again.rules.applied == OTHER


async def test_who_is_killed_before_activating_what_the_file_of_a_new_home_says_does_so_later(
    rig: AdminRig, file: Path
) -> None:
    file.with_suffix(".taken").unlink()
    rewrite(file, OTHER_RULES)
    await rig.rules_store.put(StoredRules(OTHER, OTHER_RULES, "file", "", 0))
    await rig.rules.refresh()
    assert rig.rules.applied == OTHER


async def test_an_edit_that_the_store_could_not_take_is_taken_as_soon_as_it_can(rig: AdminRig, file: Path) -> None:
    rewrite(file, OTHER_RULES)
    rig.rules._store = FullRules()  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(DatabaseDown):
        await rig.rules.refresh()
    rig.rules._store = rig.rules_store  # pyright: ignore[reportPrivateUsage]
    await rig.rules.refresh()
    assert rig.rules.applied == OTHER


async def test_what_was_taken_over_is_remembered_whole_or_not_at_all(
    rig: AdminRig, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = file.with_suffix(".taken")
    memory.with_name(f"{memory.name}.{os.getpid()}.part").mkdir()  # as good as a full disk
    rewrite(file, OTHER_RULES)
    await rig.rules.refresh()
    assert rig.rules.applied == OTHER
    assert memory.read_text() == FIRST
    assert "an earlier text that is restored in rules.yaml may not be applied" in caplog.text


async def test_another_process_takes_an_activation_over_at_its_next_refresh(file: Path) -> None:
    one, two = AdminRig(file), AdminRig()
    two.rules._store = one.rules_store  # pyright: ignore[reportPrivateUsage]
    await one.rules.refresh()
    await two.rules.refresh()
    assert two.rules.applied == FIRST


async def test_of_two_editors_the_second_is_told(rig: AdminRig) -> None:
    await edit(rig)
    with pytest.raises(Conflict, match=OTHER):
        await rig.rules.activate(FIRST, author="bob", reason="", expected_active=FIRST)
    with pytest.raises(Conflict):
        await rig.rules.put(FIRST_RULES + "# mine\n", author="bob", reason="", expected_active=FIRST)


async def test_roll_back_returns_to_what_was_active_before(rig: AdminRig) -> None:
    with pytest.raises(NotFound):
        await rig.rules.roll_back(author="ann", reason="", expected_active=FIRST)
    await edit(rig)
    await rig.rules.roll_back(author="ann", reason="", expected_active=OTHER)
    assert rig.rules.applied == FIRST


async def test_nothing_invalid_is_stored(rig: AdminRig) -> None:
    with pytest.raises(ConfigurationError):
        await rig.rules.put(BROKEN, author="ann", reason="", expected_active=FIRST)
    assert len(await rig.rules.versions()) == 1


async def test_an_active_version_that_is_not_valid_here_changes_nothing(rig: AdminRig) -> None:
    foreign = FIRST_RULES.replace("large", "unheard-of")
    stored = rig.rules_store.stored[FIRST]
    rig.rules_store.stored["f"] = type(stored)("f", foreign, "elsewhere", "", 0)
    rig.rules_store.log.append(type(rig.rules_store.log[0])("f", FIRST, "elsewhere", "", 0))
    await rig.rules.refresh()
    assert rig.rules.applied == FIRST
    assert rig.rules.problem is not None
    assert "unheard-of" in rig.rules.problem.message
    assert rig.rules.refused == "f"
    rig.rules_store.log.append(type(rig.rules_store.log[0])(FIRST, "f", "elsewhere", "rolled back", 0))
    await rig.rules.refresh()
    assert (rig.rules.refused, rig.rules.problem) == (None, None), "what was refused is gone"


async def test_a_broken_file_is_told_also_after_a_refused_version_is_gone(rig: AdminRig, file: Path) -> None:
    rewrite(file, BROKEN)
    stored = rig.rules_store.stored[FIRST]
    rig.rules_store.stored["f"] = type(stored)("f", FIRST_RULES.replace("large", "unheard-of"), "elsewhere", "", 0)
    rig.rules_store.log.append(type(rig.rules_store.log[0])("f", FIRST, "elsewhere", "", 0))
    await rig.rules.refresh()
    rig.rules_store.log.append(type(rig.rules_store.log[0])(FIRST, "f", "elsewhere", "rolled back", 0))
    await rig.rules.refresh()
    assert rig.rules.problem is not None
    assert rig.rules.problem.line == 4


async def test_how_long_an_activation_elsewhere_took_to_arrive_is_told(file: Path) -> None:
    rig, now_us, told = AdminRig(file), 0, list[float]()
    await rig.rules.refresh()
    other_worker = RulesService(
        rig.rules_store, catalogue(), lambda document, version: None, now_us=lambda: now_us, taken_over=told.append
    )
    await other_worker.refresh()
    assert not told, "what was active at the start was not waited for"
    await edit(rig)
    now_us = rig.rules_store.log[-1].at_us + 250_000
    await other_worker.refresh()
    await other_worker.refresh()
    assert told == [0.25]


class SlowAtFirst(MemoryRules):
    """Its first answer arrives when the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def get(self, version: str) -> StoredRules | None:
        if not self.asked.is_set():
            self.asked.set()
            await self.may_answer.wait()
        return await super().get(version)


async def test_who_read_the_store_earlier_applies_nothing_later(file: Path) -> None:
    rig, store, applied = AdminRig(file), SlowAtFirst(), list[str]()
    await rig.rules.refresh()
    store.stored, store.log = rig.rules_store.stored, rig.rules_store.log
    worker = RulesService(store, catalogue(), lambda document, version: applied.append(version), now_us=lambda: 0)
    early = asyncio.create_task(worker.refresh())
    await store.asked.wait()
    await edit(rig)
    late = [asyncio.create_task(worker.refresh()) for _ in range(2)]
    await asyncio.sleep(0)
    store.may_answer.set()
    await asyncio.gather(early, *late)
    assert applied == [FIRST, OTHER]
