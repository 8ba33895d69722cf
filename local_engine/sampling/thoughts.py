"""Lets an answer think before it must match a constraint: which tokens part the two, and where an answer stands."""

from enum import Enum, auto
from typing import Final

import torch

from local_engine.sampling.constraints import Matcher
from local_engine.sampling.sampling_params import Thoughts
from local_engine.text.thinking import Thinking
from local_engine.text.tokenizer import Tokenizer
from local_engine.text.tool_marks import THINKS, THOUGHT

BLANKS: Final = ("\n", "\n\n")
"""What models write between their thoughts and what they say."""


def thoughts_before(thinking: Thinking, tokenizer: Tokenizer, vocabulary_size: int) -> Thoughts | None:
    """None where there are to be none, and where no single token ends them."""
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
    """Behind the closing tag."""
    SAYS = auto()


class AfterThoughts:
    """A matcher of what follows thoughts. They may be left out where the prompt has not opened them, and an answer does
    not end within them: it would match nothing."""

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
        """Why it cannot say any more what may follow."""
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
        """Advance by a drawn token."""
        if self._place is _Place.THINKS:
            self._place = _Place.THOUGHT if token_id == self._thoughts.closes else _Place.THINKS
        elif token_id in self._beside:
            self._place = _Place.THINKS if self._place is _Place.BEGINS else _Place.SAYS
        else:
            self._place = _Place.SAYS
            self._matcher.consume(token_id)

    @property
    def _beside(self) -> tuple[int, ...]:
        """What may follow that the constraint knows nothing of."""
        beside = {_Place.BEGINS: self._thoughts.opens, _Place.THOUGHT: self._thoughts.blanks}
        return beside.get(self._place, ())
