"""A notice is posted with a few tries, to its own address alone, and that address is in no error."""

from pathlib import Path

import pytest

from gateway.errors import NoticeNotTaken
from gateway.notices.webhook import WAITS_SECONDS, Webhook
from tests.ports import refusing_port
from tests.unit.backends.http.test_http1_tls import self_signed
from tests.webhook_receiver import webhook_receiver


class Waits(list[float]):
    async def sleep(self, seconds: float) -> None:
        self.append(seconds)


async def test_it_is_posted_once_where_it_is_taken() -> None:
    waits = Waits()
    with webhook_receiver([204]) as receiver:
        await Webhook(receiver.url, waits.sleep).post({"text": "80 %"})
    assert receiver.documents == [{"text": "80 %"}]
    assert waits == []


async def test_a_fault_that_passes_is_tried_again() -> None:
    waits = Waits()
    with webhook_receiver([503, 429]) as receiver:
        await Webhook(receiver.url, waits.sleep).post({"text": "80 %"})
    assert len(receiver.documents) == 3
    assert waits == list(WAITS_SECONDS)


async def test_a_redirect_is_not_followed() -> None:
    with webhook_receiver([307, 307, 307]) as receiver, pytest.raises(NoticeNotTaken, match="it answered 307") as told:
        await Webhook(receiver.url, Waits().sleep).post({})
    assert len(receiver.documents) == 3
    assert "T0SECRET" not in str(told.value)


async def test_what_cannot_be_reached_is_told_without_its_address() -> None:
    with refusing_port() as port:
        webhook = Webhook(f"http://127.0.0.1:{port}/hooks/T0SECRET", Waits().sleep)
        with pytest.raises(NoticeNotTaken, match="cannot be reached") as told:
            await webhook.post({})
    assert "T0SECRET" not in f"{told.value}{webhook!r}"
    assert str(port) not in str(told.value)


async def test_an_address_that_is_none_is_an_error_like_others() -> None:
    with pytest.raises(NoticeNotTaken, match="InvalidURL"):
        await Webhook("http://127.0.0.1:1/\x00T0SECRET", Waits().sleep).post({})


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with refusing_port() as port, webhook_receiver() as receiver:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        await Webhook(receiver.url, Waits().sleep).post({})
    assert receiver.documents == [{}]


async def test_a_certificate_nobody_vouches_for_hears_nothing_until_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with webhook_receiver(tls=self_signed(tmp_path)) as receiver:
        with pytest.raises(NoticeNotTaken, match="cannot be reached"):
            await Webhook(receiver.url, Waits().sleep).post({})
        assert receiver.documents == []
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        await Webhook(receiver.url, Waits().sleep).post({})
    assert receiver.documents == [{}]
