"""Images and moderation through the official client, and what applies to all media: booked as billed."""

import httpx
import openai
import pytest

from gateway.ledger.entry import Media, Status
from tests.builders import make_candidate, make_snapshot
from tests.integration.service import Passage
from tests.integration.studio import JSON, TOKENS, answered, events, model
from tests.rig import KEY
from tests.scripted_provider import Raw

pytestmark = pytest.mark.integration


async def test_an_image_is_drawn_and_its_tokens_are_booked(studio: Passage) -> None:
    usage = TOKENS | {"input_tokens_details": {"text_tokens": 4, "image_tokens": 10}}
    studio.provider.plan([answered({"created": 1, "data": [{"b64_json": "AAAA"}], "usage": usage})])
    async with studio.openai() as client:
        raw = await client.images.with_raw_response.generate(model="draws", prompt="a cat", quality="low")
    assert [drawn.b64_json for drawn in raw.parse().data or []] == ["AAAA"]
    [received] = studio.provider.received
    assert (received.path, received.json) == (
        "/v1/images/generations",
        {"model": "upstream-draws", "prompt": "a cat", "quality": "low"},
    )
    entry = await studio.entry()
    assert entry.media == Media(image_input_tokens=10, image_output_tokens=50, images=1)
    assert entry.cost is not None
    assert (entry.cost.input_pico_usd, entry.cost.output_pico_usd) == (4 * 5_000_000 + 10 * 8_000_000, 50 * 40_000_000)
    assert raw.headers["x-breakeven-cost-usd"] == "0.0021"
    assert (entry.intent.operation, entry.is_usage_estimated) == ("images.generations", False)


async def test_whoever_names_no_model_gets_the_cheapest_that_draws(studio: Passage) -> None:
    studio.provider.plan([answered({"created": 1, "data": [{"url": "https://a.example/1"}, {"url": "b"}]})])
    async with studio.openai() as client:
        raw = await client.images.with_raw_response.generate(prompt="two cats", n=2)
    assert raw.headers["x-breakeven-model"] == "draws-by-the-piece"
    entry = await studio.entry()
    assert entry.cost is not None
    assert (entry.cost.other_pico_usd, entry.cost.total_pico_usd) == (4 * 10**10, 4 * 10**10)
    assert studio.provider.received[0].json["model"] == "upstream-draws-by-the-piece"


async def test_an_image_is_edited_by_form(studio: Passage) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
    studio.provider.plan([answered({"created": 1, "data": [{"b64_json": "AAAA"}], "usage": TOKENS})])
    async with studio.openai() as client:
        await client.images.edit(model="draws", image=[("a.png", picture), ("b.png", picture)], prompt="a hat")
    [received] = studio.provider.received
    assert received.path == "/v1/images/edits"
    assert received.body.count(picture) == 2
    assert b'name="model"\r\n\r\nupstream-draws\r\n' in received.body
    assert (await studio.entry()).media == Media(image_output_tokens=50, images=1)


async def test_an_image_comes_in_parts(studio: Passage) -> None:
    studio.provider.plan(
        [
            events(
                {"type": "image_generation.partial_image", "b64_json": "AA==", "partial_image_index": 0},
                {"type": "image_generation.completed", "b64_json": "AAAA", "usage": TOKENS},
            )
        ]
    )
    async with studio.openai() as client:
        stream = await client.images.generate(model="draws", prompt="a cat", stream=True, partial_images=1)
        kinds = [event.type async for event in stream]
    assert kinds == ["image_generation.partial_image", "image_generation.completed"]
    entry = await studio.entry()
    assert (entry.status, entry.media) == (Status.completed, Media(image_output_tokens=50, images=1))
    assert entry.time_to_first_token_seconds is not None


async def test_moderation_costs_nothing(studio: Passage) -> None:
    categories = {"violence": False}
    result = {"flagged": False, "categories": categories, "category_scores": {"violence": 0.1}}
    studio.provider.plan([answered({"id": "modr-1", "model": "m", "results": [result]})])
    async with studio.openai() as client:
        raw = await client.moderations.with_raw_response.create(input="be kind")
    assert raw.parse().results[0].flagged is False
    assert (raw.headers["x-breakeven-model"], raw.headers["x-breakeven-cost-usd"]) == ("judges", "0")
    assert (await studio.entry()).intent.operation == "moderations"


async def test_json_is_sent_on_as_json_whatever_its_caller_calls_it(studio: Passage) -> None:
    studio.provider.plan([answered({"id": "modr-1", "results": [{"flagged": False}]})])
    async with httpx.AsyncClient(
        base_url=studio.url, headers={"authorization": f"Bearer {KEY}"}, timeout=120
    ) as client:
        named = {"content-type": "application/x-www-form-urlencoded"}
        answer = await client.post("/v1/moderations", content=b'{"input":"x"}', headers=named)
    assert answer.status_code == 200
    headers = {name.lower(): value for name, value in studio.provider.received[0].headers.items()}
    assert headers["content-type"] == "application/json"


async def test_a_model_does_only_what_it_is_for(studio: Passage) -> None:
    async with studio.openai() as client:
        with pytest.raises(openai.BadRequestError, match="it is for images only"):
            await client.moderations.create(model="draws", input="x")
        with pytest.raises(openai.BadRequestError, match="it writes text"):
            await client.images.generate(model="writes", prompt="x")
        with pytest.raises(openai.BadRequestError, match="it is for speech only"):
            await client.chat.completions.create(model="speaks", messages=[{"role": "user", "content": "x"}])
    assert not studio.provider.received


async def test_who_has_no_such_model_is_told_how_to_have_one(studio: Passage) -> None:
    studio.service.rig.pipeline.snapshot = make_snapshot(candidates=[make_candidate("writes", backend="one")])
    async with studio.openai() as client:
        with pytest.raises(openai.BadRequestError, match=r"supports: \[moderation\]"):
            await client.moderations.create(input="x")


async def test_another_model_draws_where_the_first_fails(studio: Passage) -> None:
    drawn = answered({"created": 1, "data": [{"b64_json": "AAAA"}], "usage": TOKENS})
    failed = Raw((b"{}",), status=500, headers=JSON)
    studio.provider.plan([failed, failed, failed, drawn])
    async with studio.openai() as client:
        raw = await client.images.with_raw_response.generate(prompt="a cat")
    assert raw.headers["x-breakeven-model"] == "draws"
    entry = await studio.entry()
    assert {one.model for one in entry.attempts} == {"draws-by-the-piece", "draws"}


async def test_a_refusal_is_in_the_providers_words(studio: Passage) -> None:
    refusal = (
        b'{"error":{"message":"Your request was rejected by the safety system.","type":"image_generation_user_error",'
        b'"param":null,"code":"moderation_blocked"}}'
    )
    studio.provider.plan([Raw((refusal,), status=400, headers=JSON)])
    async with studio.openai() as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.images.generate(model="draws", prompt="a cat")
    assert refused.value.response.content == refusal


async def test_what_is_no_price_is_unknown_and_not_free(studio: Passage) -> None:
    studio.service.rig.pipeline.snapshot = make_snapshot(candidates=[model("draws", "images", None)])
    studio.provider.plan([answered({"created": 1, "data": [{"b64_json": "AAAA"}]})])
    async with studio.openai() as client:
        raw = await client.images.with_raw_response.generate(model="draws", prompt="a cat")
    entry = await studio.entry()
    assert entry.cost is None
    assert "x-breakeven-cost-usd" not in raw.headers
