"""CPU time of a classification by prompt length, load time and memory."""

import resource
import time
from typing import Any

import numpy as np

from benchmarks.report import Bar, build_report, options, publish
from classifier.artefact import read_artefact
from classifier.item_response import ItemResponseClassifier
from classifier.load import SHIPPED, build_book, build_encoder, build_traits, load_artefact
from classifier.native.native_projector import load_reader
from classifier.projection import PlainProjector
from classifier.protocol import Conversation, ModelProfile

TOKENS = (50, 500, 1500, 30_000)
SCRIPT_WORDS = 50
ROUNDS = 400
CATALOGUE = ("gpt-4o", "gpt-4o-mini", "claude-sonnet-4-5", "deepseek-chat", "llama-3.3-70b", "smollm2-135m-instruct")
TEXT = (
    "the reactor cools while pressure rises so find how many litres of water remain after three hours if the pump "
    "moves 4.5 litres per minute and explain why your answer differs from an estimate based on volume alone"
)
# Prompts that are not only ASCII: English as a word processor writes it, and other scripts.
SCRIPTS = {
    "English with curly quotes": TEXT.replace("reactor", "“reactor”").replace("answer", "answer’s – value"),
    "German": "Der Kühler fasst größere Mengen während der Druck über 4,5 Bar steigt also erkläre warum übrig bleibt",
    "Russian": "Насос перекачивает 4,5 литра в минуту а давление растёт поэтому объясни сколько литров воды останется",
    "Arabic": "تنقل المضخة 4.5 لترات في الدقيقة بينما يرتفع الضغط فاشرح كم لترًا يبقى بعد ثلاث ساعات ولماذا",
    "Hindi": "पंप हर मिनट 4.5 लीटर पानी निकालता है और दबाव बढ़ता है तो समझाओ कितने लीटर बचेंगे और क्यों",
    "Chinese": "水泵 每分钟 抽取 4.5 升 ， 同时 压力 上升 。 请 解释 三小时 后 还剩 多少 升水 ？ 为什么 ？",
    "Korean": "펌프는 분당 4.5리터를 옮기고 압력은 올라갑니다 세 시간 후 물은 몇 리터 남는지 설명하세요",
}


def main() -> None:
    chosen = options(__doc__).parse_args()
    publish(measure(), chosen)


def measure() -> dict[str, Any]:
    """The whole report, in CPU time of this thread, so that other programs on the machine do not count."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    classifier = load_artefact().bind([ModelProfile(name) for name in CATALOGUE])
    load_seconds = time.perf_counter() - started
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    readers = (classifier, without_compiler())
    by_length, in_python = ({str(tokens): time_prompts(one, tokens) for tokens in TOKENS} for one in readers)
    by_script, scripts_in_python = (
        {name: time_prompts(one, SCRIPT_WORDS, text) for name, text in SCRIPTS.items()} for one in readers
    )
    size = sum(path.stat().st_size for path in SHIPPED.iterdir())
    results = {
        "reader": "python" if load_reader() is None else "native",
        "cpu_milliseconds_by_tokens": by_length,
        "cpu_milliseconds_in_python": in_python,
        "words_by_script": SCRIPT_WORDS,
        "cpu_milliseconds_by_script": by_script,
        "cpu_milliseconds_by_script_in_python": scripts_in_python,
        "load_seconds": round(load_seconds, 3),
        "memory_mebibytes": round(grown / 1024, 1),
        "artefact_bytes": size,
        "models_bound": len(CATALOGUE),
    }
    bars = [
        Bar("p50 ms at 50 tokens", by_length["50"]["p50"], 0.3, "most"),
        *(Bar(f"p50 ms at {tokens} tokens", by_length[str(tokens)]["p50"], 1.0, "most") for tokens in (1500, 30_000)),
        *(Bar(f"p50 ms at {tokens} tokens, in Python", in_python[tokens]["p50"], 1.0, "most") for tokens in in_python),
        *(Bar(f"p50 ms of {SCRIPT_WORDS} words, {name}", by_script[name]["p50"], 0.3, "most") for name in by_script),
        Bar("artefact bytes", size, 10_000_000, "most"),
    ]
    return build_report("classifier_latency", results, bars)


def without_compiler() -> ItemResponseClassifier:
    """The same artefact, as used on a machine without a compiler."""
    artefact = read_artefact(SHIPPED)
    traits = build_traits(artefact)
    projector = PlainProjector(build_encoder(artefact), traits)
    return ItemResponseClassifier(projector, traits, build_book(artefact), [ModelProfile(name) for name in CATALOGUE])


def time_prompts(classifier: ItemResponseClassifier, tokens: int, text: str = TEXT) -> dict[str, float]:
    """CPU milliseconds over prompts of about that many words of a text, each different, so that no cache answers."""
    draw = np.random.default_rng(tokens)
    spent: list[float] = []
    for number in range(ROUNDS):
        words = draw.choice(text.split(), tokens).tolist()
        conversation = Conversation(f"case {number}q{number * 7919}: " + " ".join(words))
        started = time.thread_time_ns()
        classifier.classify(conversation)
        spent.append((time.thread_time_ns() - started) / 1e6)
    warm = spent[20:]
    return {"p50": round(float(np.quantile(warm, 0.5)), 4), "p99": round(float(np.quantile(warm, 0.99)), 4)}


if __name__ == "__main__":
    main()
