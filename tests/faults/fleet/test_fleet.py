"""Two replicas of two workers each, with real PostgreSQL and real Redis: they agree, and count as one."""

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

import aiohttp
import httpx
import pytest

from classifier.online.correction import Correction
from gateway.learning.classifier_versions import ClassifierVersions
from tests.faults.fleet.caller import (
    Answered,
    chat,
    chat_afresh,
    chat_with_every_worker,
    connections,
    of_every_worker,
    until_known,
)
from tests.faults.fleet.replica import Replica, rules_text
from tests.faults.fleet.take_overs import NEVER, take_overs
from tests.faults.fleet.two_replicas import COST, ENTRIES, WORKERS, Fleet
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.integration]
PARALLEL = 1000


async def statuses(fleet: Fleet, key: str) -> set[int]:
    return {got.status for got in await chat_with_every_worker(fleet.urls, key)}


async def until_all(fleet: Fleet, key: str, status: int) -> int:
    """Waits until every worker answers with that status; returns how many answers of 200 came until then."""
    deadline, served = time.monotonic() + PATIENCE_SECONDS, 0
    while True:
        found = [got.status for got in await chat_with_every_worker(fleet.urls, key)]
        served += found.count(200)
        if set(found) == {status}:
            return served
        assert time.monotonic() < deadline, f"still {set(found)}"


async def test_a_new_key_works_and_a_revoked_one_stops_at_every_worker(fleet: Fleet) -> None:
    key_id, key = fleet.new_key("short-lived")
    assert await statuses(fleet, key) == {200}, "at once"
    fleet.admin("POST", f"/keys/{key_id}/revoke", at=fleet.two)
    await until_all(fleet, key, 401)


async def test_a_rotated_key_is_one_key_at_every_worker_until_its_overlap_is_ended(fleet: Fleet) -> None:
    key_id, old = fleet.new_key("rotated", team="blue")
    fleet.admin("PATCH", f"/keys/{key_id}", limits={"requests_per_minute": 1_000_000, "budget_usd": "5"})
    assert await statuses(fleet, old) == {200}
    new = fleet.admin("POST", f"/keys/{key_id}/rotate", at=fleet.two, overlap_seconds=3600)["key"]
    assert await statuses(fleet, new) == {200}
    assert await statuses(fleet, old) == {200}
    body = {"model": "plain", "messages": [{"role": "user", "content": "once"}]}
    answers: list[httpx.Response] = []
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        for url, secret in zip(fleet.urls, (old, new), strict=True):
            headers = {"authorization": f"Bearer {secret}", "idempotency-key": "over the rotation"}
            answers.append(await client.post(f"{url}/v1/chat/completions", json=body, headers=headers))
    assert answers[0].content == answers[1].content
    assert answers[1].headers["idempotent-replayed"] == "true"

    def last_used() -> object:
        [listed] = [one for one in fleet.admin("GET", "/keys")["keys"] if one["id"] == key_id]
        return listed["old_secrets"][0]["last_used_at_us"]

    wait_until(last_used, "nobody says that the old secret is in use")
    fleet.admin("POST", f"/keys/{key_id}/end-overlap")
    await until_all(fleet, old, 401)
    assert await statuses(fleet, new) == {200}
    fleet.admin("POST", f"/keys/{key_id}/rotate", overlap_seconds=3600)
    fleet.admin("POST", f"/keys/{key_id}/revoke", at=fleet.two)
    await until_all(fleet, new, 401)


async def test_rules_activated_at_one_replica_decide_at_every_worker(fleet: Fleet) -> None:
    _, key = fleet.new_key("rules")
    await until_all(fleet, key, 200)
    before = take_overs(fleet.urls)
    _activate(fleet, rules_text("second"))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while {got.headers["x-breakeven-rule"] for got in await chat_with_every_worker(fleet.urls, key)} != {"second"}:
        assert time.monotonic() < deadline

    def again() -> list[int]:
        """All counts from one reading: the next may come from a worker that does not yet know as much of the others."""
        return [one.count - before.get(worker, NEVER).count for worker, one in take_overs(fleet.urls).items()]

    wait_until(lambda: again() == [1] * WORKERS, "not every worker tells of one taking over")


async def test_a_conversations_next_turn_finds_its_warm_prefix_at_every_worker(fleet: Fleet) -> None:
    """One worker answers the first turn; the second turn's cached input is cheaper at every worker."""
    _, key = fleet.new_key("conversation")
    await until_known(fleet.urls, key)
    first = [{"role": "system", "content": "You count. " * 1000}, {"role": "user", "content": "How far?"}]
    second = [*first, {"role": "assistant", "content": "To 10."}, {"role": "user", "content": "And then?"}]
    [cold] = set(await _expected_costs(fleet, key, second))
    async with connections(1) as session:
        assert (await chat(session, fleet.one.url, key, messages=first, max_tokens=4)).status == 200
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(costs := set(await _expected_costs(fleet, key, second))) > 1 or costs == {cold}:
        assert time.monotonic() < deadline, f"cold {cold}, now {costs}"
        await asyncio.sleep(0.05)
    assert min(costs) < cold


async def _expected_costs(fleet: Fleet, key: str, messages: list[dict[str, str]]) -> list[float]:
    """What each worker expects such a request to cost at the plain model."""
    body, headers = {"model": "plain", "messages": messages}, {"authorization": f"Bearer {key}"}

    async def expected(session: aiohttp.ClientSession, url: str) -> float:
        async with session.post(f"{url}/v1/route", json=body, headers=headers) as answer:
            answer.raise_for_status()
            return float((await answer.json())["candidates"][0]["expected_cost_usd"])

    return await of_every_worker(fleet.urls, expected)


async def test_a_teams_rate_is_one_for_all_workers(fleet: Fleet) -> None:
    _, key = fleet.new_key("team", team="red")
    began = time.monotonic()
    answers = await chat_afresh(fleet.urls, key, 1)
    while len(answers) < 90 or all(got.status != 429 for got in answers):
        answers += await chat_afresh(fleet.urls, key, 4)
    refilled = (time.monotonic() - began) * 30 / 60
    admitted = sum(got.status == 200 for got in answers)
    assert {got.status for got in answers} <= {200, 401, 429}
    assert 30 <= admitted <= 30 + refilled + 1, f"{admitted} of {len(answers)}, {refilled:.1f} refilled"
    refused = next(got for got in answers if got.status == 429)
    assert "The team 'red' may use 30 requests a minute" in refused.body.decode()


async def test_requests_at_once_are_counted_over_all_workers(fleet: Fleet) -> None:
    """While the provider holds its answers, all requests that reached it stay under way."""
    most, refused = 3, list[Answered]()
    _, key = fleet.new_key("many-at-once", max_parallel_requests=most)
    await until_known(fleet.urls, key)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session:
        fleet.provider.hold()
        try:
            asked = (chat(session, fleet.urls[number % 2], key, stream=True) for number in range(120))
            under_way = {asyncio.create_task(one) for one in asked}
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(under_way) > most:
                    done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                    refused += [one.result() for one in done]
        finally:
            fleet.provider.go_on()
        served = await asyncio.gather(*under_way)
    assert [got.status for got in served] == [200] * most
    assert {got.status for got in refused} == {429}
    assert {got.headers["retry-after"] for got in refused} == {"1"}
    assert f"This key already has {most} requests under way" in refused[0].body.decode()


async def test_a_websocket_at_any_worker_continues_what_another_answered_and_all_have_one_rate(fleet: Fleet) -> None:
    key_id, key = fleet.new_key("sockets", requests_per_minute=WORKERS)
    began, responses, refused = time.monotonic(), list[str](), list[dict[str, Any]]()

    async def ask(session: aiohttp.ClientSession, url: str) -> None:
        asked: dict[str, Any] = {"type": "response.create", "model": "auto", "input": f"question {len(responses)}"}
        if responses:
            asked["previous_response_id"] = responses[-1]
        async with session.ws_connect(f"{url}/v1/responses", headers={"authorization": f"Bearer {key}"}) as socket:
            await socket.send_json(asked)
            while (event := await socket.receive_json())["type"] not in ("response.completed", "error"):
                pass
        if event["type"] == "error":
            refused.append(event)
        else:
            responses.append(event["response"]["id"])

    while not refused:
        await of_every_worker(fleet.urls, ask)
    refilled = (time.monotonic() - began) * WORKERS / 60
    assert WORKERS <= len(responses) <= WORKERS + refilled + 1
    assert (refused[0]["status"], refused[0]["error"]["code"]) == (429, "rate_limit_exceeded")
    assert await fleet.until_booked(len(responses), "where d.key_id = $1", key_id) == len(responses)


@pytest.mark.usefixtures("one_month")
async def test_a_tiers_quota_is_one_for_all_workers_and_no_prompt_buys_more(fleet: Fleet) -> None:
    _, key = fleet.new_key("tiers", tier_quotas={"premium": {"requests": 5, "window": "month"}})
    await until_known(fleet.urls, key)
    _activate(fleet, rules_text("third", "[premium, plain]"))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while {got.headers["x-breakeven-rule"] for got in await chat_with_every_worker(fleet.urls, key)} != {"third"}:
        assert time.monotonic() < deadline
    routed = await chat_afresh(fleet.urls, key, 10)
    assert {got.status for got in routed} == {200}
    direct = await chat_afresh(fleet.urls, key, 2, model="premium")
    assert {got.status for got in direct} == {429}
    assert "5 requests per month answered by models of the tier 'premium'" in direct[0].body.decode()
    rows = await fleet.until_booked(1, "where d.model = 'premium' and d.key_id = $1", await _key_id(fleet, "tiers"))
    assert rows <= 5


@pytest.mark.usefixtures("one_month")
async def test_a_thousand_parallel_requests_spend_the_budget_and_no_more(fleet: Fleet) -> None:
    """Compared with a serial oracle: one request after the other, each holding its bound and then charged its cost."""
    bound, cost = await _bound_and_cost(fleet)
    budget = bound + cost * PARALLEL // 2
    serial, spent = 0, 0
    while spent + bound <= budget:
        serial, spent = serial + 1, spent + cost
    key_id, key = fleet.new_key("parallel", budget_usd=f"{budget}e-12", budget_window="month")
    await until_known(fleet.urls, key)
    async with connections(PARALLEL) as session:
        asked = [chat(session, fleet.urls[number % 2], key, max_tokens=4) for number in range(PARALLEL)]
        answers = await asyncio.gather(*asked)
    admitted = sum(got.status == 200 for got in answers)
    assert {got.status for got in answers} == {200, 429}
    assert await fleet.until_booked(admitted, "where d.key_id = $1", key_id) == admitted
    [row] = await fleet.rows(f"select {COST} as cost {ENTRIES} where d.key_id = $1", key_id)
    assert row["cost"] <= budget, "not even one increment too much"
    assert admitted >= 0.95 * serial, f"{admitted} admitted, one after the other {serial} would be"


@pytest.mark.usefixtures("one_month")
async def test_each_end_user_of_a_key_spends_their_budget_and_no_more(fleet: Fleet) -> None:
    bound, cost = await _bound_and_cost(fleet)
    budget, names = bound + 40 * cost, ["ada", "grace"]
    key_id, key = fleet.new_key("app", end_user_budget_usd=f"{budget}e-12")
    await until_known(fleet.urls, key)
    places = [(fleet.urls[n % 2], names[n // 2 % 2]) for n in range(400)]
    async with connections(len(places)) as session:
        answers = await asyncio.gather(*(chat(session, url, key, max_tokens=4, user=name) for url, name in places))
    assert {got.status for got in answers} == {200, 429}
    told = next(got.body for got in answers if got.status == 429).decode()
    assert "The budget of this end user of the key is $" in told
    whole = sum(got.status == 200 for got in answers)
    assert await fleet.until_booked(whole, "where d.key_id = $1", key_id) == whole
    query = f"select e.end_user, {COST} as cost {ENTRIES} where d.key_id = $1 group by e.end_user"
    spent = {row["end_user"]: row["cost"] for row in await fleet.rows(query, key_id)}
    days = "select end_user, sum(counted_pico_usd) as cost from end_user_days where key_id = $1 group by end_user"
    assert {row["end_user"]: row["cost"] for row in await fleet.rows(days, key_id)} == spent
    assert all(0.95 * (budget - bound) <= spent[name] <= budget for name in names), spent


@pytest.mark.usefixtures("one_month")
async def test_a_teams_strict_budget_is_one_for_all_its_keys_and_workers(fleet: Fleet) -> None:
    bound, cost = await _bound_and_cost(fleet)
    keys = [fleet.new_key(f"strict-{number}", team="green")[1] for number in range(2)]
    for key in keys:
        await until_known(fleet.urls, key)
    fleet.admin("PUT", "/budgets", scope="team", name="green", month_usd="0.000000000001", stops=True)
    served_before = await until_all(fleet, keys[0], 429)
    budget = bound + 40 * cost
    usd = f"{budget // 10**12}.{budget % 10**12:012d}"
    fleet.admin("PUT", "/budgets", at=fleet.two, scope="team", name="green", month_usd=usd, stops=True)
    admitted, wave = 0, list[Answered]()
    async with connections(64) as session:
        while not admitted or any(got.status == 200 for got in wave):
            asked = [chat(session, fleet.urls[n % 2], keys[n // 2 % 2], max_tokens=4) for n in range(64)]
            wave = await asyncio.gather(*asked)
            assert {got.status for got in wave} <= {200, 429}
            admitted += sum(got.status == 200 for got in wave)
    assert "The budget of the team 'green' is $" in wave[0].body.decode()
    whole = served_before + admitted
    assert await fleet.until_booked(whole, "where d.team = $1", "green") == whole
    [row] = await fleet.rows(f"select {COST} as cost {ENTRIES} where d.team = $1", "green")
    assert 0.95 * (budget - bound) <= row["cost"] <= budget


async def test_the_days_money_for_shadow_calls_is_one_for_all_workers(fleet: Fleet) -> None:
    cap = 10**10
    _, key = fleet.new_key("shadowed")
    await until_known(fleet.urls, key)
    _activate(fleet, rules_text("shadowed", "[plain, premium]"))

    async def spent_by_day() -> list[int]:
        where = "where d.key_id = 'shadow' group by e.accepted_at_us / 86400000000"
        return [row["cost"] for row in await fleet.rows(f"select {COST} as cost {ENTRIES} {where}")]

    deadline = time.monotonic() + PATIENCE_SECONDS
    async with connections(32) as session:
        while max(spent := await spent_by_day(), default=0) < 0.9 * cap:
            assert time.monotonic() < deadline, spent
            await asyncio.gather(*(chat(session, fleet.urls[n % 2], key, max_tokens=16) for n in range(32)))
        answers = [await chat(session, fleet.urls[n % 2], key, max_tokens=16) for n in range(64)]
    await fleet.all_are_booked_once([got.request_id for got in answers])
    assert all(spent <= cap for spent in await spent_by_day()), "not even one call too much"
    _activate(fleet, rules_text("fourth"))


def _activate(fleet: Fleet, text: str) -> None:
    active = fleet.admin("GET", "/rules")["active"]
    fleet.admin("PUT", "/rules", text=text, expected_active=active, activate=True)


async def test_a_classifier_promoted_at_one_replica_decides_at_every_worker_until_it_is_taken_back(
    fleet: Fleet,
) -> None:
    _, key = fleet.new_key("classified")
    await until_known(fleet.urls, key)
    shifts = {"plain": (-0.5, 0.0)}
    name = ClassifierVersions(fleet.one.home / "classifier").add_correction(Correction(shifts), {"judged": 60})

    def command(replica: Replica, *words: str) -> None:
        asked = [sys.executable, "-m", "gateway", "classifier", *words]
        done = subprocess.run(asked, env=dict(replica.environment), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    async def decided_by() -> set[str]:
        """The classifiers of the decisions of all workers from now on."""
        got = await chat_with_every_worker(fleet.urls, key)
        await fleet.all_are_booked_once(ids := [one.request_id for one in got])
        versions = "select distinct c.classifier_version as version from entries e"
        where = "join circumstances c on c.id = e.circumstance_id where e.request_id = any($1)"
        return {row["version"] for row in await fleet.rows(f"{versions} {where}", [bytes.fromhex(one) for one in ids])}

    async def until_all_decide_by(version: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := await decided_by()) != {version}:
            assert time.monotonic() < deadline, found

    [frozen] = await decided_by()
    await asyncio.to_thread(command, fleet.one, "promote", name, "--untested", "a test")
    await until_all_decide_by(f"{frozen}+{name}")
    await asyncio.to_thread(command, fleet.two, "rollback")
    await until_all_decide_by(frozen)


async def _bound_and_cost(fleet: Fleet) -> tuple[int, int]:
    """What such a request must hold, as a key that cannot afford it is told, and what it costs."""
    _, poor = fleet.new_key("poor", budget_usd="0.000000000001")
    await until_known(fleet.urls, poor)
    async with connections(1) as session:
        refused = await chat(session, fleet.one.url, poor, max_tokens=4)
        assert refused.status == 429, refused.body
        message = json.loads(refused.body)["error"]["message"]
        _, key = fleet.new_key("rich")
        await until_known(fleet.urls, key)
        answered = await chat(session, fleet.one.url, key, max_tokens=4)
    needs = message.partition("this request needs $")[2].split(". ")[0]
    return round(float(needs) * 1e12) + 10**6, round(float(answered.headers["x-breakeven-cost-usd"]) * 1e12)


async def _key_id(fleet: Fleet, name: str) -> str:
    [row] = await fleet.rows("select id from api_keys where name = $1", name)
    return str(row["id"])
