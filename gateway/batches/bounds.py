"""How much of batches this gateway takes on."""

import msgspec

from gateway.errors import Forbidden


class BatchBounds(msgspec.Struct, frozen=True):
    """`at_once` lines are asked at a time, by each process; `leave_free_share` of an engine's slots is left to others.
    `most_stored_bytes` are of the files of one team, or of a key without one."""

    at_once: int
    leave_free_share: float
    most_lines: int
    most_line_bytes: int
    most_file_bytes: int
    most_stored_bytes: int
    keep_days: int

    def require_open(self) -> None:
        """Raises Forbidden where there are none."""
        if not self.at_once:
            raise Forbidden(
                "Batches are switched off here: batches.at_once is 0 in breakeven.yaml.", code="batches_off"
            )
