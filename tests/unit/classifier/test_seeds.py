"""The written judgement: well-formed, on one scale, without duplicates, and disjoint from the evaluation's prompts."""

from benchmarks.router_judges import JUDGED_SETS, load_judged
from classifier.seeds import KINDS, judgement_hashes, load_kind, load_seeds, load_topics


def test_every_row_states_a_share_and_a_prompt() -> None:
    for level, prompt in [*load_seeds(), *load_topics()]:
        assert 0.0 < level < 1.0, prompt
        assert prompt.strip() == prompt != ""
        assert "\\n" not in prompt


def test_no_prompt_is_stated_twice() -> None:
    prompts = [prompt for _, prompt in load_seeds()]
    assert len(set(prompts)) == len(prompts)
    words = [words for _, words in load_topics()]
    assert len(set(words)) == len(words)


def test_kinds_are_on_one_scale() -> None:
    mean = {kind: sum(level for level, _ in rows) / len(rows) for kind in KINDS if (rows := load_kind(kind))}
    assert mean["everyday"] < mean["word_problems"] < mean["mathematics"]
    assert mean["everyday"] < mean["exams"] < mean["mathematics"]
    assert mean["everyday"] < mean["code"]


def test_what_judges_the_seeds_is_no_seed() -> None:
    seeds = {prompt.casefold() for _, prompt in load_seeds()}
    for name in JUDGED_SETS:
        judged = load_judged(name)
        assert len(set(judged.prompts)) == len(judged.prompts)
        assert not seeds & {prompt.casefold() for prompt in judged.prompts}


def test_provenance_names_every_file() -> None:
    assert set(judgement_hashes()) == {f"{kind}.tsv" for kind in (*KINDS, "topics")}
    assert all(len(found) == 64 for found in judgement_hashes().values())
