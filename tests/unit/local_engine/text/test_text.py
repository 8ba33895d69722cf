"""Text from tokens, never part of a character or of a stop string, and tokens from text, within bounds."""

from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, normalizers, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import BPE

from local_engine.errors import ContextLengthExceeded, InvalidRequest
from local_engine.text.answer_text import AnswerText, overlap
from local_engine.text.tokenizer import IncrementalDetokenizer, Tokenizer, byte_alphabet
from local_engine.text.user_markup import LONG, cut_into_tokens, encoded_ids


def make_tokenizer(template: str | None = None) -> Tokenizer:
    """A tokenizer with a token per byte, and two special ones."""
    alphabet = byte_alphabet()
    fast = FastTokenizer(BPE(vocab=dict(alphabet.items()), merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    return Tokenizer(fast, chat_template=template, bos_token_id=256, eos_token_ids=[257])


TOKENIZER = make_tokenizer()


@given(st.text(max_size=30))
def test_text_survives_tokens_and_every_piece_is_whole_characters(text: str) -> None:
    ids = TOKENIZER.encode(text)
    detokenizer = IncrementalDetokenizer(TOKENIZER)
    pieces = [detokenizer.push(token) for token in ids] + [detokenizer.finish()]
    assert "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces) or "\ufffd" in text


@given(st.binary(max_size=20))
def test_bytes_that_are_not_text_become_the_same_as_decoded_at_once(raw: bytes) -> None:
    detokenizer = IncrementalDetokenizer(TOKENIZER)
    pieces = "".join(detokenizer.push(byte) for byte in raw) + detokenizer.finish()
    assert pieces == raw.decode("utf-8", errors="replace") == TOKENIZER.decode(list(raw))


NFKC = make_tokenizer()
NFKC.fast.normalizer = normalizers.NFKC()
NORMALISING = Tokenizer(NFKC.fast, chat_template=None, bos_token_id=None, eos_token_ids=[])


@given(st.text(st.sampled_from("ａ\u1100\u1161\u11a8 \n</s>e\u0301"), max_size=60))
def test_no_text_is_refused_for_its_length_that_has_room(text: str) -> None:
    for tokenizer in (TOKENIZER, NORMALISING):
        tokenizer.refuse_longer(text, len(tokenizer.encode(text, with_bos=False)), "prompt")


def test_a_text_that_has_no_room_however_it_is_cut_is_refused_uncut() -> None:
    """Counting the tokens of four prompts of 8 MB at once took 3 GB, though the window has room for one token in two
    hundred."""
    for tokenizer, most in ((TOKENIZER, 10), (NORMALISING, 2)):
        with pytest.raises(ContextLengthExceeded, match=r"too long for this model's 2 tokens: it has at least \d+\."):
            tokenizer.refuse_longer("a " * 1000, 2, "messages")
        tokenizer.refuse_longer("a" * 40, most, "prompt")
        tokenizer.refuse_longer("a " * 1000, None, "prompt")
        for text, within in (("é" * (1 << 20) + "a", None), (" " * (1 << 21) + "a", 9)):
            with pytest.raises(ContextLengthExceeded, match="at most 2097152 are cut"):
                tokenizer.refuse_longer(text, within, "prompt")
    lacking = FastTokenizer(BPE(vocab={"a": 0, "<unk>": 1}, merges=[], unk_token="<unk>", fuse_unk=True))
    Tokenizer(lacking, chat_template=None, bos_token_id=None, eos_token_ids=[]).refuse_longer("b" * 1000, 2, "prompt")


def test_long_texts_are_cut_one_at_a_time_and_others_beside_them() -> None:
    fast, long = FastTokenizer(BPE(vocab={"a": 0}, merges=[])), "b" * (LONG + 1)
    with cut_into_tokens(len(long)):
        waiting = Thread(target=encoded_ids, args=(fast, long))
        waiting.start()
        assert encoded_ids(fast, "a") == [0]
        waiting.join(0.05)
        assert waiting.is_alive()
    waiting.join()


def test_special_tokens_are_not_shown() -> None:
    ids = TOKENIZER.encode("a<s>b</s>")
    assert ids == [97, 256, 98, 257]
    assert TOKENIZER.decode(ids) == "ab"
    assert TOKENIZER.decode(ids, skips_special=False) == "a<s>b</s>"


@given(
    st.text("abx", max_size=24),
    st.lists(st.text("abx", min_size=1, max_size=4), max_size=3).map(tuple),
    st.one_of(st.just(0), st.integers(1, 12)),
)
def test_stop_strings_cut_exactly_where_the_first_may_end(text: str, stops: tuple[str, ...], least: int) -> None:
    """The stop string completed first, after `least` tokens, ends the answer; of several, the one that starts first."""
    answer = AnswerText(TOKENIZER, stops)
    shown = ""
    for number, token in enumerate(TOKENIZER.encode(text), 1):
        shown += answer.push(token, may_stop=number > least)
        assert least or not any(stop in shown for stop in stops)
        if answer.stopped_by is not None:
            break
    shown += answer.finish()
    ends = [end for end in range(least + 1, len(text) + 1) if text[:end].endswith(stops)] if stops else []
    if not ends:
        assert shown == text
        assert answer.stopped_by is None
        return
    longest = max((stop for stop in stops if text[: ends[0]].endswith(stop)), key=len)
    assert answer.stopped_by == longest
    assert shown == text[: ends[0] - len(longest)]


@pytest.mark.parametrize(
    ("text", "stop", "length"), [("abc", "cd", 1), ("abc", "bcd", 2), ("abc", "abc", 0), ("", "x", 0), ("xx", "xxx", 2)]
)
def test_overlap(text: str, stop: str, length: int) -> None:
    assert overlap(text, stop) == length


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].nothing.more }}",
        "{{ ''.__class__.__mro__[1] }}",
    ],
)
def test_a_template_that_refuses_or_escapes_is_the_callers_error(template: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make_tokenizer(template).render_chat([{"role": "user", "content": "x"}])
    assert caught.value.parameter == "messages"


def test_a_template_may_ask_for_the_date() -> None:
    rendered = make_tokenizer("{{ strftime_now('%Y') }}").render_chat([{"role": "user", "content": "x"}])
    assert rendered.isdecimal()
    assert len(rendered) == 4


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "é!"),
        ("{{ messages[0] | tojson(ensure_ascii=True, sort_keys=True) }}", '{"content": "\\u00e9", "role": "user"}'),
        ("{{ messages[0] | tojson(separators=(',', ':')) }}", '{"role":"user","content":"é"}'),
        ("{% if documents is not none %}{{ documents | length }}{% endif %}.", "."),
    ],
)
def test_templates_may_say_what_transformers_reads(template: str, text: str) -> None:
    assert make_tokenizer(template).render_chat([{"role": "user", "content": "é"}]) == text


@pytest.mark.parametrize(
    "parts",
    [
        "message.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('')",
        "message.content[0].text",
        "message['content'][0]['text']",
    ],
)
def test_templates_that_take_only_lists_of_parts_are_told_every_message(parts: str) -> None:
    template = "{% for message in messages %}[{{ message.role }}]{{ " + parts + " }}{% endfor %}"
    talk = [{"role": role, "content": f"{role} é"} for role in ("system", "user", "assistant")]
    told = "[system]system é[user]user é[assistant]assistant é"
    assert make_tokenizer(template).render_chat(talk) == told
    going_on = {"continue_final_message": True}
    assert make_tokenizer(template).render_chat(talk, extra=going_on) == told


def test_templates_that_take_both_are_told_texts() -> None:
    told = "{{ content if content is string else content[0].text ~ '!' }}"
    template = "{% set content = messages[0].content %}" + told
    assert make_tokenizer(template).render_chat([{"role": "user", "content": "é"}]) == "é"


def test_an_answer_may_continue_the_last_message() -> None:
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}[end]{% endfor %}" + (
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    tokenizer = make_tokenizer(template)
    talk = [{"role": "user", "content": "1 2"}, {"role": "assistant", "content": "1 2"}]
    assert tokenizer.render_chat(talk) == "[user]1 2[end][assistant]1 2[end][assistant]"
    assert tokenizer.render_chat(talk, extra={"add_generation_prompt": False}).endswith("1 2[end]")
    assert tokenizer.render_chat(talk, extra={"continue_final_message": True}) == "[user]1 2[end][assistant]1 2"
    # A template that trims never leaves a blank before what the model continues.
    trailing = [talk[0], {"role": "assistant", "content": "1 2 "}]
    assert tokenizer.render_chat(trailing, extra={"continue_final_message": True}) == "[user]1 2[end][assistant]1 2"
    plain = make_tokenizer(template.replace(" | trim", ""))
    assert plain.render_chat(trailing, extra={"continue_final_message": True}) == "[user]1 2[end][assistant]1 2 "
    with pytest.raises(InvalidRequest, match="leave out"):
        tokenizer.render_chat(talk, extra={"continue_final_message": True, "add_generation_prompt": True})
    with pytest.raises(InvalidRequest, match="omits the last message"):
        make_tokenizer("nothing").render_chat(talk, extra={"continue_final_message": True})
