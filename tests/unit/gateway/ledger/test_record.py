"""Framing: whole records are read back, anything else ends the scan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ledger.record import MAX_RECORD_BYTES, Framing, Kind

FRAMING = Framing()
records = st.lists(
    st.tuples(st.sampled_from(list(Kind)), st.text("0123456789abcdef", max_size=40), st.binary(max_size=200)),
    max_size=8,
)


def frame_all(epoch: int, items: list[tuple[Kind, str, bytes]]) -> bytes:
    return b"".join(FRAMING.frame(epoch, *item) for item in items)


def settlements(epoch: int, content: bytes) -> list[tuple[str, bytes]]:
    request_ids, payloads, _ = FRAMING.scan_settled(epoch, content, 0)
    return list(zip(request_ids, payloads, strict=True))


@given(records, st.integers(0, 2**64 - 1), st.binary(max_size=50))
def test_records_come_back_whatever_zeros_or_garbage_follow(
    items: list[tuple[Kind, str, bytes]], epoch: int, garbage: bytes
) -> None:
    whole = frame_all(epoch, items)
    for tail in (b"", bytes(100), garbage + bytes(20)):
        found = list(FRAMING.scan(epoch, whole + tail))
        assert [(record.kind, record.request_id, record.payload) for record in found] == items
        assert not found or found[-1].end == len(whole)
        assert settlements(epoch, whole + tail) == [item[1:] for item in items if item[0] is Kind.SETTLE]
    assert FRAMING.scan_settled(epoch, whole, 7)[2] == 7 + len(whole)


@given(records.filter(bool), st.data())
def test_one_changed_byte_ends_the_scan_there(items: list[tuple[Kind, str, bytes]], data: st.DataObject) -> None:
    whole = bytearray(frame_all(1, items))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    found = list(FRAMING.scan(1, bytes(whole)))
    assert [(record.kind, record.request_id, record.payload) for record in found] == items[: len(found)]
    assert (found[-1].end if found else 0) <= place
    settled = [item[1:] for item in items if item[0] is Kind.SETTLE]
    before = sum(item[0] is Kind.SETTLE for item in items[: len(found)])
    told = settlements(1, bytes(whole))
    is_settlement = items[len(found)][0] is Kind.SETTLE
    assert told in ([settled[:before]] if is_settlement else [settled[:before], settled])


@given(records.filter(bool), st.data())
def test_a_cut_record_is_not_read(items: list[tuple[Kind, str, bytes]], data: st.DataObject) -> None:
    whole = frame_all(1, items)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert len(list(FRAMING.scan(1, whole[:cut]))) < len(items)


@given(st.binary(max_size=2_000))
def test_garbage_never_raises(content: bytes) -> None:
    list(FRAMING.scan(3, content))


def test_a_record_of_another_segment_is_not_ours() -> None:
    assert not list(FRAMING.scan(2, FRAMING.frame(1, Kind.INTENT, "ab", b"x")))


def test_the_longest_record_comes_back_and_a_longer_one_is_refused() -> None:
    name, payload = "a" * 255, bytes(MAX_RECORD_BYTES - 512)
    [record] = FRAMING.scan(1, FRAMING.frame(1, Kind.SETTLE, name, payload))
    assert (record.request_id, record.payload) == (name, payload)
    for longer in ((name + "a", b""), ("a", payload + b"x")):
        with pytest.raises(ValueError, match="too long"):
            FRAMING.frame(1, Kind.SETTLE, *longer)
