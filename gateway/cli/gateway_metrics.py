"""Reads a running gateway's `/metrics`, which needs no key."""

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def samples(url: str, *names: str) -> list[Sample]:
    """The series of these metrics, of every worker. Raises httpx.HTTPError or ValueError where no gateway answers."""
    text = httpx.get(f"{url}/metrics", timeout=3, trust_env=False).raise_for_status().text
    return [one for family in text_string_to_metric_families(text) for one in family.samples if one.name in names]
