"""Follows a JSON object or list through text that is still growing, each character once. Checks brackets alone."""

import re
from typing import Final

IN_STRING: Final = re.compile(r'["\\]')
# Brackets, the beginning of a string, and what JSON has nowhere outside of one.
OUTSIDE: Final = re.compile(r'["{}\[\]]|[^\w\s:,.+\-]')
OPENING, CLOSING = "{[", "}]"


class JsonSpan:
    """Where the value ends that a text begins with. `is_open`: it may end yet."""

    def __init__(self) -> None:
        self.at = 0
        self.is_open = True
        self._depth = 0
        self._is_string = False

    def end(self, text: str, start: int = 0) -> int | None:
        """Just behind the value, None where that is not reached; `text` is the earlier one or more of it, less what
        was taken from its beginning as far as `at`."""
        at = max(self.at, start)
        while self.is_open and at < len(text):
            found = (IN_STRING if self._is_string else OUTSIDE).search(text, at)
            if found is None:
                at = len(text)
                break
            mark = found[0]
            if mark == "\\":
                # What it escapes may not be there yet.
                if found.end() == len(text):
                    at = found.start()
                    break
                at = found.end() + 1
                continue
            at = found.end()
            if mark == '"':
                self._is_string = not self._is_string
            elif mark in OPENING:
                self._depth += 1
            elif mark in CLOSING:
                self._depth -= 1
                self.is_open = self._depth > 0
                if not self.is_open:
                    self.at = at
                    return at
            else:
                self.is_open = False
                at = found.start()
        self.at = at
        return None
