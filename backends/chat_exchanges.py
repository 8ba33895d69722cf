"""Sends chats in OpenAI's format, again without what a server refused if that only tunes the answer; remembers that."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

from msgspec.structs import replace as replace_fields

from backends.dialects import Dialect
from backends.errors import UpstreamRejected
from backends.formats import efforts, refused_fields, stream_options
from backends.formats.efforts import EFFORT, effort_of, offered_effort, with_effort
from backends.formats.json_objects import decode_object, text_of
from backends.formats.openai_request import build_body, is_in_own_words
from backends.formats.past_thinking import with_unknown_signatures
from backends.formats.refused_chats import ChatMend, chat_mend_for, may_be_quoted
from backends.formats.refused_fields import OfEffort, of_effort, refused_field, without_refused
from backends.formats.stream_options import without_refused_options
from backends.formats.strict_turns import Mend, may_quote, mend_for, mended
from backends.http_backend import Exchange
from backends.learned import Learned, Monotonic
from backends.protocol import Call, Reply

Send: TypeAlias = Callable[[Call, Exchange], Awaitable[Reply]]


class ChatExchanges:
    """For one backend, whose chats differ from OpenAI's by `dialect`; models are remembered by their upstream names."""

    def __init__(self, dialect: Dialect, send: Send, monotonic: Monotonic) -> None:
        self._dialect = dialect
        self._untold = replace(dialect, lacks=dialect.lacks | {"stream_options"}, asks_for_usage=False)
        self._send = send
        self._tell_no_usage = Learned[str, bool](monotonic)
        self._mends = Learned[str, tuple[Mend, ...]](monotonic)
        self._chat_mends = Learned[str, tuple[ChatMend, ...]](monotonic)
        self._refused = Learned[OfEffort, frozenset[str]](monotonic)
        self._efforts = Learned[tuple[str, str], str](monotonic)  # by model and what is asked for

    def body(self, call: Call) -> bytes:
        """The chat as this server is known to take it. Raises UpstreamRejected if it cannot be parsed."""
        body = build_body(call, self._untold if call.upstream_model in self._tell_no_usage else self._dialect)
        asked = effort_of(body) or "" if self._efforts and EFFORT in body else None
        if asked is not None and (told := self._efforts.get((call.upstream_model, asked))):
            body = with_effort(body, told)
        refused = self._refused.get(of_effort(call.upstream_model, body)) if self._refused else None
        if refused and not self.is_answered_for_itself(call):
            body = without_refused(body, refused)
        for mend in self._chat_mends.get(call.upstream_model) or ():
            body = mend(body)
        return mended(body, mends) if (mends := self._mends.get(call.upstream_model)) else body

    async def exchange(self, call: Call, exchange: Exchange) -> Reply:
        """Asks again without what the server refused, if that only tunes the answer, with an effort that it knows, and
        with the messages and the rest as it takes them; later chats too once it took the rest."""
        model = call.upstream_model
        tried: list[Mend] = []
        learned: list[Mend] = []
        chat_mends: list[ChatMend] = []
        refused: set[str] = set()
        asked = told = None
        is_told_no_options = False
        while True:
            try:
                reply = await self._send(call, exchange)
            except UpstreamRejected as refusal:
                asked = None  # another effort alone was not enough, so nothing is learned of it
                mend = mend_for(refusal.body)
                if mend and mend not in tried and (kept := mended(exchange.body, (mend,))) != exchange.body:
                    tried.append(mend)
                    is_of_one = mend is with_unknown_signatures  # another conversation's are good
                    learned += [] if is_of_one or may_quote(refusal.body, call.body) else [mend]
                elif (whole := chat_mend_for(refusal.body)) and (kept := whole(exchange.body)) != exchange.body:
                    chat_mends.append(whole)
                elif told is None and (effort := self._offered_effort(exchange.body, refusal)):
                    asked, told = effort
                    kept = with_effort(exchange.body, told)
                    kept = without_refused(kept, self._refused.get(of_effort(model, kept)) or ())
                elif (
                    (name := refused_field(refusal.body))
                    and not self.is_answered_for_itself(call)
                    and (kept := without_refused(exchange.body, (name,))) != exchange.body
                ):
                    refused.add(name)
                # Last: servers that quote the whole request name its options whatever they refuse.
                elif (kept := without_refused_options(exchange.body, refusal.body)) != exchange.body:
                    is_told_no_options = True
                else:
                    raise
                exchange = replace_fields(exchange, body=kept)
                continue
            if learned:
                known = self._mends.get(model) or ()
                self._mends.put(model, (*known, *(mend for mend in learned if mend not in known)))
            if chat_mends and not may_be_quoted(call.body):
                known_mends = self._chat_mends.get(model) or ()
                self._chat_mends.put(model, (*known_mends, *(one for one in chat_mends if one not in known_mends)))
            if refused and not refused_fields.may_be_repeated(call.body):
                key = of_effort(model, exchange.body)
                self._refused.put(key, (self._refused.get(key) or frozenset()) | refused)
            if asked and told and not efforts.may_be_repeated(call.body):
                self._efforts.put((model, asked), told)
            if is_told_no_options and not stream_options.may_be_repeated(call.body):
                self._tell_no_usage.put(model, True)
            return reply

    def is_answered_for_itself(self, call: Call) -> bool:
        """Whether OpenAI is named in its own words and gets a chat as it came."""
        return self._dialect.models_think and is_in_own_words(call, text_of(decode_object(call.body) or {}, "model"))

    def _offered_effort(self, body: bytes, refusal: UpstreamRejected) -> tuple[str, str] | None:
        """What is asked for and what the server offers. None for OpenAI's models: their efforts are known, and who
        names one in OpenAI's words is answered by it."""
        asked = None if self._dialect.models_think else effort_of(body)
        told = offered_effort(asked, refusal.body) if asked else None
        return (asked, told) if asked and told else None
