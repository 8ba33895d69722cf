"""Predictions for a catalogue of models, kept once for models that are alike: hundreds of names share a few dozen
curves."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import floor
from typing import Final, overload

import msgspec

from classifier.protocol import Quality

REMEMBERED = 256
SHARE_SCALE: Final = 10_000.0
TOKEN_SCALE: Final = 10.0


class Places:
    """Where each model's figures are among the different ones. `packed` says the same in bytes, and is compressed,
    because every record in the ledger's journal contains it. All models are `known_among` the names that `rounded` was
    given last."""

    __slots__ = ("known_among", "length", "packed", "quality")

    def __init__(self, quality: dict[str, int], length: dict[str, int]) -> None:
        """Both have the same models, in the same order."""
        self.quality = quality
        self.length = length
        self.known_among: Mapping[str, object] | None = None
        parts = [list(quality), list(quality.values()), list(length.values())]
        self.packed = zlib.compress(msgspec.json.encode(parts), 9)


@lru_cache(REMEMBERED)
def places_of(packed: bytes) -> tuple[dict[str, int], dict[str, int]]:
    """The two mappings of `Places`."""
    names, quality, length = msgspec.json.decode(zlib.decompress(packed), type=tuple[list[str], list[int], list[int]])
    return dict(zip(names, quality, strict=True)), dict(zip(names, length, strict=True))


class Qualities(Mapping[str, Quality]):
    """Each model's quality. Deviations are computed when one is asked for: a decision needs only the means."""

    __slots__ = ("_deviations", "_found", "means", "places")

    def __init__(self, places: Places, means: Sequence[float], deviations: Callable[[], Sequence[float]]) -> None:
        self.places = places
        self.means = means
        self._deviations = deviations
        self._found: list[Quality] | None = None

    def __getitem__(self, model: str) -> Quality:
        at = self.places.quality[model]
        if self._found is None:
            self._found = list(map(Quality, self.means, self._deviations()))
        return self._found[at]

    def __iter__(self) -> Iterator[str]:
        return iter(self.places.quality)

    def __len__(self) -> int:
        return len(self.places.quality)

    def moved(self, places: Places, origins: Sequence[int], means: Sequence[float]) -> "Qualities":
        """Other means with the same deviations: the figure at each place is made of the one at its origin."""

        def deviations() -> list[float]:
            known = self._deviations()
            return [known[origin] for origin in origins]

        return Qualities(places, means, deviations)


class Lengths(Mapping[str, float]):
    """Each model's expected length of the answer, in tokens."""

    __slots__ = ("places", "tokens")

    def __init__(self, places: Places, tokens: Sequence[float]) -> None:
        self.places = places
        self.tokens = tokens

    def __getitem__(self, model: str) -> float:
        return self.tokens[self.places.length[model]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.places.length)

    def __len__(self) -> int:
        return len(self.places.length)


class Predictions(msgspec.Struct, frozen=True, array_like=True):
    """The same rounded, as the ledger stores it: quality in ten-thousandths, lengths in tenths of a token, each
    different one once. Read like a mapping from model to quality."""

    models: bytes
    """`Places.packed`."""
    shares: tuple[int, ...]
    tenths: tuple[int, ...]

    def __getitem__(self, model: str) -> float:
        return self.shares[places_of(self.models)[0][model]] / SHARE_SCALE

    @overload
    def get(self, model: str) -> float | None: ...
    @overload
    def get(self, model: str, default: float) -> float: ...
    def get(self, model: str, default: float | None = None) -> float | None:
        at = places_of(self.models)[0].get(model)
        return default if at is None else self.shares[at] / SHARE_SCALE

    def qualities_of(self, models: Sequence[str]) -> list[float | None]:
        """`get` for each of them."""
        return _of_each(models, places_of(self.models)[0], self.shares, SHARE_SCALE)

    def lengths_of(self, models: Sequence[str]) -> list[float | None]:
        """In tokens; None for a model without predictions."""
        return _of_each(models, places_of(self.models)[1], self.tenths, TOKEN_SCALE)

    def keys(self) -> list[str]:
        return list(places_of(self.models)[0])

    def items(self) -> list[tuple[str, float]]:
        return [(name, self.shares[at] / SHARE_SCALE) for name, at in places_of(self.models)[0].items()]

    def __contains__(self, model: object) -> bool:
        return model in places_of(self.models)[0]

    def __iter__(self) -> Iterator[str]:
        return iter(places_of(self.models)[0])

    def __len__(self) -> int:
        return len(places_of(self.models)[0])


def _of_each(
    models: Sequence[str], places: Mapping[str, int], figures: Sequence[int], scale: float
) -> list[float | None]:
    found: list[float | None] = []
    for model in models:  # nearly always a few: a comprehension would cost more than all of these
        at = places.get(model)
        found.append(None if at is None else figures[at] / scale)
    return found


def rounded(
    quality: Mapping[str, Quality], lengths: Mapping[str, float], names: Mapping[str, object]
) -> Predictions | None:
    """None unless both share their places, as those of one classification do, all models are among `names`, and all
    figures are numbers.

    Rounds half up by arithmetic: `round` with decimals formats the number and parses it again. The constants are
    floats: the interpreter has no shortcut for a float times a whole number.
    """
    if not isinstance(quality, Qualities) or not isinstance(lengths, Lengths) or quality.places is not lengths.places:
        return None
    places = quality.places
    if places.known_among is not names:  # nearly always those of the last request
        if not places.quality.keys() <= names.keys():
            return None
        places.known_among = names
    try:
        shares = tuple([floor(mean * SHARE_SCALE + 0.5) for mean in quality.means])
        tenths = tuple([floor(tokens * TOKEN_SCALE + 0.5) for tokens in lengths.tokens])
    except (ValueError, OverflowError):
        return None
    return Predictions(places.packed, shares, tenths)
