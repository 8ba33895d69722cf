"""Binding a catalogue: each source of a model's curve, in order, and what names alone imply."""

import pytest

from classifier.load import load_artefact
from classifier.names import billions_of_parameters, canonical, undated
from classifier.protocol import Conversation, ModelProfile

SHIPPED = load_artefact()
PROMPT = Conversation("If 3 pipes fill a tank in 4 hours, how long do 5 pipes need? Explain each step.")


def quality(profile: ModelProfile) -> float:
    return SHIPPED.bind([profile]).classify(PROMPT).quality[profile.name].mean


@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        ("Meta-Llama-3_1-70B-Instruct", "llama-3.1-70b-instruct"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b-instruct"),
        ("llama3.1:8b", "llama-3.1-8b"),
        ("openai/gpt-4o", "gpt-4o"),
        ("Meta-Llama-3.1-405B-Instruct@hyperbolic", "llama-3.1-405b-instruct"),
    ],
)
def test_canonical(name: str, spelling: str) -> None:
    assert canonical(name) == spelling


def test_undated() -> None:
    assert undated("gpt-4o-2024-08-06") == "gpt-4o"
    assert undated("claude-3-5-sonnet-20241022") == "claude-3-5-sonnet"


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("SmolLM2-135M-Instruct", 0.135),
        ("mixtral-8x7b", 56.0),
        ("qwen2.5-0.5b", 0.5),
        ("gpt-4o", None),
        ("llama-3.1-8b-instant", 8.0),
    ],
)
def test_sizes_are_read_from_names(name: str, size: float | None) -> None:
    assert billions_of_parameters(name) == size


@pytest.mark.parametrize(
    ("profile", "origin"),
    [
        (ModelProfile("a", head="gpt-4o-mini", ability=0.1), "head gpt-4o-mini"),
        (ModelProfile("a", head="nobody", ability=0.1), "no head 'nobody': stated ability"),
        (ModelProfile("a", benchmarks={"MMLU": 0.8}, ability=0.1), "public benchmark averages"),
        (ModelProfile("a", benchmarks={"unheard-of": 0.8}, ability=0.1), "stated ability"),
        (ModelProfile("openai/gpt-4o"), "trained head of gpt-4o"),
        (ModelProfile("gpt-5.4-mini"), "family gpt-5*mini*"),
        (ModelProfile("nobodys-13b-chat"), "size 13e9 parameters"),
        (ModelProfile("nobody"), "nothing is known: cautious default"),
        (ModelProfile("gpt-6.1-sol"), "family gpt-[6-9]*"),
        (ModelProfile("openrouter-gpt-6-luna", upstream_model="openai/gpt-6-luna"), "family gpt-[6-9]*luna*"),
        (ModelProfile("fast", upstream_model="openai/gpt-oss-20b"), "family gpt-oss*"),
        (ModelProfile("groq-gpt-oss-20b", upstream_model="openai/gpt-oss-20b"), "family gpt-oss*"),
        (ModelProfile("gpt-4o", upstream_model="azure/ours"), "trained head of gpt-4o"),
        (ModelProfile("ours-13b", upstream_model="default"), "size 13e9 parameters"),
    ],
)
def test_the_state_says_where_a_curve_comes_from(profile: ModelProfile, origin: str) -> None:
    assert SHIPPED.bind([profile]).origins[profile.name] == origin


def test_names_alone_put_models_in_a_sensible_order() -> None:
    names = [
        "smollm2-135m-instruct",
        "llama-3.1-8b-instant",
        "llama-3.3-70b-versatile",
        "deepseek-chat",
        "claude-sonnet-4-5",
        "gpt-5.4",
    ]
    means = [quality(ModelProfile(name)) for name in names]
    assert means == sorted(means)
    assert means[0] < 0.15
    assert means[-1] > 0.85


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("claude-opus-5-5", "claude-sonnet-5-5"),
        ("claude-sonnet-5-5", "claude-haiku-5-5"),
        ("deepseek-v4-pro", "deepseek-v2"),
        ("gpt-6.1-sol", "gpt-5.4-mini"),
        ("gpt-5.4-mini", "gpt-6-luna"),
    ],
)
def test_a_later_generation_is_not_taken_for_an_earlier_one(better: str, worse: str) -> None:
    assert quality(ModelProfile(better)) > quality(ModelProfile(worse))


def test_a_default_is_less_sure_than_a_head() -> None:
    bound = SHIPPED.bind([ModelProfile("nobody"), ModelProfile("gpt-4o-mini")]).classify(PROMPT).quality
    assert bound["nobody"].deviation > bound["gpt-4o-mini"].deviation


def test_stated_abilities_and_benchmarks_order() -> None:
    assert quality(ModelProfile("m", ability=0.2)) < quality(ModelProfile("m", ability=0.8))
    assert quality(ModelProfile("m", benchmarks={"mmlu": 0.5})) < quality(
        ModelProfile("m", benchmarks={"mmlu": 0.85, "gsm8k": 0.95})
    )


@pytest.mark.parametrize("ability", [-1.0, 0.0, 1.0, 7.0])
def test_absurd_abilities_are_clipped(ability: float) -> None:
    assert 0.0 < quality(ModelProfile("m", ability=ability)) < 1.0
