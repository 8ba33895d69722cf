"""Follows a JSON object or list through growing text, reading each character once. Checks only brackets."""

import re
from typing import Final

IN_STRING: Final = re.compile(r'["\\]')
# Brackets, the beginning of a string, and characters that JSON never has outside of strings.
OUTSIDE: Final = re.compile(r'["{}\[\]]|[^\w\s:,.+\-]')
OPENING, CLOSING = "{[", "}]"


class JsonSpan:
    """Finds the end of the value with which a text begins. `is_open`: it may still end."""

    def __init__(self) -> None:
        self.at = 0
        self.is_open = True
        self._depth = 0
        self._is_string = False

    def end(self, text: str, start: int = 0) -> int | None:
        """The index after the value, None if not reached; `text` is the previous text or an extension of it, less what
        was removed from its beginning according to `at`."""
        at = max(self.at, start)
        while self.is_open and at < len(text):
            found = (IN_STRING if self._is_string else OUTSIDE).search(text, at)
            if found is None:
                at = len(text)
                break
            mark = found[0]
            if mark == "\\":
                # The escaped character may not have arrived yet.
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
