"""The published schema of a rules file."""

from gateway.routing.rules import rules_json_schema


def test_the_schema_uses_the_names_of_the_file() -> None:
    assert "from" in str(rules_json_schema())
    assert "from_" not in str(rules_json_schema())


def test_the_published_schema_knows_cascades_and_exploration() -> None:
    schema = str(rules_json_schema())
    for name in (
        "cascade",
        "escalate_to",
        "min_mean_logprob",
        "quality_share",
        "explore_min_quality",
        "explore_usd_per_day",
    ):
        assert name in schema
