"""Finds our model in the name of a cloud's meter. Pure.

Clouds write a model's words in another order and without spaces, among words that say what is metered:
`Claude4.6Sonnet-cache-read-input-token-count`, `5.4 mini cd Inp Gl 1M Tokens`. So a name is compared by its letters in
any order and by its numbers in theirs, without those words. What has any other word is another model.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain

from gateway.reports.charged import model_key

NOISE = re.compile(
    r"in(p|pt|put)?|o(ut)?pt?|out(put)?|tokens?|count|units|cach(e|ed|ing)|c?cd|cchd|reads?|writes?|wr|hits?|storage|hours?"
    r"|1m|1k|\d+h|\d+m|standard|flex|priority|pp|prty|bat(ch)?|offpeak|mantle|latency|optimized"
    r"|cross|regions?|regional|re?gnl|global|glbl?|gl|geo|data|zone|dz(one)?|non|thinking|predictions?"
    r"|short(co)?|long(co)?|context|l?ctx|ga|preview|latest|instruct|maas|v1|(generate|embed)?content|generate|for|using|on"
    r"|cloud|vertex|ai|model|garden|as|a|service"
    r"|openai|anthropic|amazon|aws|azure|az|google|meta|microsoft|xai|cohere|nvidia|moonshotai|zai|foundry|fw"
)
"""What is metered, where, and who made the model."""
KINDS = frozenset({"text", "txt", "image", "img", "audio", "aud", "video", "speech"})
"""May be of the name (`gpt-image-1.5`), and once more of what is metered (`gpt-image-1.5 text inp`)."""
DATE = re.compile(r"20\d\d-?\d\d-?\d\d")
MONTH_AND_DAY = re.compile(r"(0[1-9]|1[0-2])[0-3]\d")
"""OpenAI's snapshots at Azure: `gpt 4o 0513`."""
VERSION = re.compile(r":\d\w*$")
"""Of Bedrock: `claude-haiku-4-5-20251001-v1:0`."""
MAKER = re.compile(r"^(?:[a-z-]+\.)+(?=[a-z])")
"""Also with the region of an inference profile: `us.anthropic.`."""

Key = tuple[str, tuple[str, ...]]


class MeterNames:
    """Our names, those of the price list for names of your own (deployments, inference profiles), and meters."""

    def __init__(self, ours: Iterable[str], priced_as: Mapping[str, str]) -> None:
        self._priced_as = priced_as
        self._known: dict[Key, str] = {}
        for words in sorted(_words(self._bare(name)) for name in ours):
            if words:
                self._known.setdefault(_key(words), "-".join(words))

    def of_ours(self, name: str) -> str:
        """One name for all that a cloud bills as one model."""
        return self._known.get(_key(_words(self._bare(name))), model_key(name))

    def of_meter(self, meter: str) -> str:
        """Our name of the model, or the meter's words without those that say what is metered."""
        words = _words(meter)
        kinds = [place for place, word in enumerate(words) if word in KINDS]
        without = (words[:place] + words[place + 1 :] for place in kinds)
        found = (self._known.get(_key(left)) for left in chain([words], without))
        return next((name for name in found if name is not None), "-".join(words) or meter)

    def _bare(self, name: str) -> str:
        known = self._priced_as.get(name, name)
        return MAKER.sub("", VERSION.sub("", known.rpartition("/")[2].lower()))


def may_be(meter: str, model: str) -> bool:
    """Whether a meter, as `of_meter` leaves it, has all the words of our model, and more."""
    letters, numbers = _key(_words(model))
    more, others = _key(_words(meter))
    return not Counter(letters) - Counter(more) and others[: len(numbers)] == numbers


def _words(name: str) -> list[str]:
    words = re.findall(r"[a-z0-9]+", DATE.sub("", name.lower()))
    return [word for word in words if not NOISE.fullmatch(word) and not MONTH_AND_DAY.fullmatch(word)]


def _key(words: Iterable[str]) -> Key:
    """`claude4`, `6sonnet` is `claude-sonnet-4-6`, and `nova2`, `0lite` is `nova-2-lite`."""
    text = " ".join(words)
    numbers = (number.lstrip("0") for number in re.findall(r"\d+", text))
    return "".join(sorted(re.sub(r"[^a-z]", "", text))), tuple(number for number in numbers if number)
