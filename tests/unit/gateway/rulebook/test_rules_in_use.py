"""What traffic teaches about a rule becomes a fact of the next decision, and every decision replays from its entry."""

from gateway.instants import DAY_US
from gateway.routing.decide import decide
from gateway.routing.snapshot import request_facts_of
from gateway.rulebook.state import ExplorationSpend
from tests.builders import make_snapshot
from tests.rig import A, B, Rig


def rig_with(choose: str) -> Rig:
    rig = Rig()
    rules = f"version: 1\nrules: [{{name: default, choose: {choose}}}]\n"
    rig.pipeline.snapshot = make_snapshot(rules, [A, B])
    return rig


def decided_as_logged(rig: Rig) -> bool:
    intents = [entry.intent for entry in rig.ledger.entries]
    return all(decide(request_facts_of(one), rig.pipeline.snapshot).decision == one.decision for one in intents)


async def test_exploring_ends_when_its_money_is_spent_and_begins_again_the_next_day() -> None:
    rig = rig_with("{from: any, explore: 0.5, explore_usd_per_day: '0.0021'}")
    rig.pipeline.draw = lambda: 0.3
    day = [7]
    spend = rig.pipeline.exploration = ExplorationSpend(rig.pipeline.rule_state, lambda: day[0] * DAY_US)
    for _ in range(6):
        await rig.ask()
        spend.settled(rig.ledger.entries[-1])
    assert "".join(entry.model for entry in rig.ledger.entries) == "bbbbaa", "0.00185 $ more each, where 0.00007 came"
    assert rig.ledger.entries[-1].intent.decision.propensity == 1.0
    day[0] += 1
    spend.turn()
    await rig.ask()
    assert rig.ledger.entries[-1].model == "b"
    assert decided_as_logged(rig)


async def test_what_is_under_way_is_held_against_the_cap() -> None:
    rig = rig_with("{from: any, explore: 0.5, explore_usd_per_day: '0.002'}")
    rig.pipeline.draw = lambda: 0.3
    rig.pipeline.exploration = ExplorationSpend(rig.pipeline.rule_state, rig.pipeline.now_us)
    await rig.ask()
    await rig.ask()
    assert [entry.model for entry in rig.ledger.entries] == ["b", "a"], "nothing was settled: 0.0018 $ are held"
    assert decided_as_logged(rig)


async def test_a_threshold_is_a_fact_of_the_decision() -> None:
    rig = rig_with("{from: any, quality_share: 0.99}")
    target = rig.pipeline.snapshot.rules[0].target_name
    assert target is not None
    await rig.ask()
    rig.pipeline.rule_state.allowed_loss = {target: 0.05}
    await rig.ask()
    rig.pipeline.rule_state.allowed_loss = {target: 0.04}
    await rig.ask()
    assert [entry.model for entry in rig.ledger.entries] == ["b", "a", "b"]
    assert decided_as_logged(rig)
