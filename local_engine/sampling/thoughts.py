"""Lets an answer think before it must match a constraint: the tokens that separate the two, and the answer's state."""

from enum import Enum, auto
from typing import Final

import torch

from local_engine.sampling.constraints import Matcher
from local_engine.sampling.sampling_params import Thoughts
from local_engine.text.thinking import Thinking
from local_engine.text.tokenizer import Tokenizer
from local_engine.text.tool_marks import THINKS, THOUGHT

BLANKS: Final = ("\n", "\n\n")
"""What models write between their thoughts and the answer."""


def thoughts_before(thinking: Thinking, tokenizer: Tokenizer, vocabulary_size: int) -> Thoughts | None:
    """None if there are to be no thoughts, or if no single token ends them."""
    closes = tokenizer.id_of(THOUGHT)
    if thinking.is_over or closes is None or closes >= vocabulary_size:
        return None
    blanks = [tokenizer.encode(blank, with_bos=False) for blank in BLANKS]
    opens = tokenizer.id_of(THINKS)
    return Thoughts(
        is_open=thinking.is_open,
        opens=() if opens is None or opens >= vocabulary_size else (opens,),
        closes=closes,
        blanks=tuple(ids[0] for ids in blanks if len(ids) == 1 and ids[0] < vocabulary_size),
        ends=tuple(end for end in tokenizer.eos_token_ids if end < vocabulary_size),
    )


class _Place(Enum):
    BEGINS = auto()
    THINKS = auto()
    THOUGHT = auto()
    """After the closing tag."""
    SAYS = auto()


class AfterThoughts:
    """A matcher for what follows thoughts. These are optional unless the prompt has opened them, and no end token may
    occur within them, as the answer would then match nothing."""

    def __init__(self, matcher: Matcher, thoughts: Thoughts) -> None:
        self._matcher = matcher
        self._thoughts = thoughts
        self._place = _Place.THINKS if thoughts.is_open else _Place.BEGINS

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow."""
        return self._place is _Place.SAYS and self._matcher.is_complete

    @property
    def failure(self) -> str | None:
        """Why it can no longer say what may follow."""
        return self._matcher.failure

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        """A copy of one row with every token that may not follow at minus infinity."""
        if self._place is _Place.THINKS:
            masked = logits.clone()
            masked[list(self._thoughts.ends)] = float("-inf")
            return masked
        masked = self._matcher.mask(logits)
        also = list(self._beside)
        masked[also] = logits[also]
        return masked

    def consume(self, token_id: int) -> None:
        """Advances by a drawn token."""
        if self._place is _Place.THINKS:
            self._place = _Place.THOUGHT if token_id == self._thoughts.closes else _Place.THINKS
        elif token_id in self._beside:
            self._place = _Place.THINKS if self._place is _Place.BEGINS else _Place.SAYS
        else:
            self._place = _Place.SAYS
            self._matcher.consume(token_id)

    @property
    def _beside(self) -> tuple[int, ...]:
        """Allowed tokens that the constraint knows nothing of."""
        beside = {_Place.BEGINS: self._thoughts.opens, _Place.THOUGHT: self._thoughts.blanks}
        return beside.get(self._place, ())
