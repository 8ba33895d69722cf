"""Limits on the batches this gateway accepts."""

import msgspec

from gateway.errors import Forbidden


class BatchBounds(msgspec.Struct, frozen=True):
    """`at_once` lines are asked at a time, per process; `leave_free_share` of an engine's slots is left to others.
    `most_stored_bytes` limits the files of one team, or of a key without a team."""

    at_once: int
    leave_free_share: float
    most_lines: int
    most_line_bytes: int
    most_file_bytes: int
    most_stored_bytes: int
    keep_days: int

    def require_open(self) -> None:
        """Raises Forbidden if batches are switched off."""
        if not self.at_once:
            raise Forbidden(
                "Batches are switched off here: batches.at_once is 0 in breakeven.yaml.", code="batches_off"
            )
