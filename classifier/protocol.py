"""What the gateway asks of a classifier, and the values passed between them.

Those created per prompt are structs: a frozen dataclass takes four times as long to create.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec


class Conversation(msgspec.Struct, frozen=True):
    """What the classifier may look at, already picked out of the wire format. Texts are as received, uncapped.

    `last_user` is the last user turn; `earlier` the turns before it, oldest first, system prompt excluded.
    """

    last_user: str
    system: str = ""
    earlier: Sequence[str] = ()
    tool_count: int = 0
    image_count: int = 0
    wants_json: bool = False


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """How the classifier finds a catalogue model's curve; the first of these that is given counts.

    `head` names a model of the artefact; `benchmarks` are public averages in [0, 1] by benchmark name; `ability` is a
    plain share of good answers in [0, 1]. Without them the model is matched by the family and size in its name, or in
    `upstream_model`, the provider's name for it.
    """

    name: str
    head: str | None = None
    benchmarks: Mapping[str, float] | None = None
    ability: float | None = None
    upstream_model: str | None = None


class Quality(msgspec.Struct, frozen=True):
    """P(the answer is good enough) with its standard deviation, both in [0, 1]."""

    mean: float
    deviation: float


class Classification(msgspec.Struct, frozen=True):
    """What is known of one prompt before any model has seen it.

    `difficulty` in [0, 1] is the share of a reference population of models expected to fail on it. `quality` and
    `output_tokens` (expected length of the answer) are keyed by the catalogue names bound at load.
    """

    difficulty: float
    uncertainty: float
    quality: Mapping[str, Quality]
    output_tokens: Mapping[str, float]


class Classifier(Protocol):
    """A loaded artefact bound to a catalogue. Immutable; safe to share between tasks and threads."""

    @property
    def version(self) -> str:
        """Content hash of the artefact and the bound catalogue: equal versions give equal answers."""
        ...

    def classify(self, conversation: Conversation) -> Classification:
        """Never raises on any text (empty, huge, lone surrogates, NULs); cost is bounded whatever the length."""
        ...

    def bind(self, profiles: Sequence[ModelProfile]) -> "Classifier":
        """The same artefact for another catalogue."""
        ...
