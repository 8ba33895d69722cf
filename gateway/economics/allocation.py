"""Splits a paid bill over those who used it, exactly: integer pico-USD in, the same pico-USD out."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AllocatedBill:
    """`shares_pico_usd` and `idle_pico_usd` add up to the bill, to the pico-dollar."""

    shares_pico_usd: dict[str, int]
    idle_pico_usd: int


def allocate_bill(bill_pico_usd: int, gpu_seconds: Mapping[str, float], paid_gpu_seconds: float) -> AllocatedBill:
    """Each user (a model, a team) pays for its GPU-seconds at the bill's own price; what nobody used is idle.

    When more was used than paid for (clocks that overlap an hour's edge) the bill is split by use and nothing is idle.
    """
    used_us = {name: round(seconds * 1e6) for name, seconds in gpu_seconds.items()}
    capacity_us = max(round(paid_gpu_seconds * 1e6), sum(used_us.values()))
    if capacity_us == 0:
        return AllocatedBill(dict.fromkeys(used_us, 0), bill_pico_usd)
    shares = {name: bill_pico_usd * used // capacity_us for name, used in used_us.items()}
    is_full = sum(used_us.values()) == capacity_us
    if is_full:
        _give_remainder(shares, bill_pico_usd - sum(shares.values()))
    return AllocatedBill(shares, bill_pico_usd - sum(shares.values()))


def _give_remainder(shares: dict[str, int], remainder_pico_usd: int) -> None:
    """Fewer pico-dollars than there are shares: one each, largest share first, ties by name."""
    for name in sorted(shares, key=lambda name: (-shares[name], name))[:remainder_pico_usd]:
        shares[name] += 1
