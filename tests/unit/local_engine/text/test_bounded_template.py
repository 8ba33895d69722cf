"""A chat template in a separate process: the same text, and limits on an untrusted template's resources."""

import resource
from collections.abc import Iterator

import pytest

from local_engine.errors import InvalidRequest
from local_engine.text.bounded_template import CPU_SECONDS, BoundedTemplate
from local_engine.text.chat_template import ChatTemplate

HI = [{"role": "user", "content": "hi \ud83d"}]
# Renders the messages, or takes 100 GB, or fails.
TEMPLATE = (
    "{% if tools %}{{ 'a' * 10 ** 11 }}{% elif wrong %}{{ raise_exception('so wrong') }}"
    "{% else %}{{ messages[0].content }}{{ bos_token }}{% endif %}"
)


@pytest.fixture(scope="module")
def template() -> Iterator[BoundedTemplate]:
    bounded = BoundedTemplate(ChatTemplate(TEMPLATE, None, {"bos_token": "<s>"}))
    yield bounded
    bounded.close()


def test_text_and_refusals_are_as_without_a_process(template: BoundedTemplate) -> None:
    assert template.render(HI) == "hi \ud83d<s>"
    with pytest.raises(InvalidRequest, match="so wrong") as refusal:
        template.render(HI, extra={"wrong": True})
    assert refusal.value.parameter == "messages"
    soft, _ = resource.prlimit(template.process_id, resource.RLIMIT_CPU)
    assert soft <= 2 * CPU_SECONDS, "the system ends a loop without end"


def test_what_takes_too_much_is_refused_and_the_next_is_rendered(template: BoundedTemplate) -> None:
    """It used to get the engine killed, and an endless loop blocked everything."""
    with pytest.raises(InvalidRequest, match="template was stopped"):
        template.render(HI, tools=[{}])
    assert template.render(HI) == "hi \ud83d<s>"
