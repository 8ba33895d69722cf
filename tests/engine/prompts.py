"""A hundred different prompts, and long ones: questions, code, lists, languages, arithmetic, odd characters."""

SUBJECTS = (
    "the tides", "a sorting algorithm", "sourdough bread", "the French Revolution", "photosynthesis",
    "a bicycle's gears", "double-entry bookkeeping", "the moons of Jupiter", "TCP congestion control", "a haiku",
    "migrating birds", "compound interest", "the human heart", "chess openings", "glass blowing",
    "a binary search tree", "volcanoes", "the violin", "electric cars", "vaccination",
)  # fmt: skip
TEMPLATES = (
    "Explain {} to a ten-year-old.",
    "Write three short facts about {}, as a numbered list.",
    "What is the most common misunderstanding about {}? Answer in one sentence.",
    "Translate into French: I would like to know more about {}.",
)
ODD = (
    "2+2=", "12345 * 678 =", "def fibonacci(n):\n    ", "SELECT name, COUNT(*) FROM", "{\"name\": \"Ada\", \"age\":",
    "naïve café, 😀 and 你好:", "     leading spaces", "A B A B A B A", "\n\n\n", "One two three. One two",
    "<|im_start|>", "The quick brown fox", "Q: Who wrote Hamlet?\nA:", "Once upon a time", "import numpy as np\n",
    "1, 1, 2, 3, 5, 8,", "Dear Sir or Madam,", "https://example.com/", "Ελληνικά και русский:", "x",
)  # fmt: skip
CHATS = [template.format(subject) for subject in SUBJECTS for template in TEMPLATES]


def long_text(words: int) -> str:
    """Prose of about this many words that does not soon repeat itself."""
    parts = [f"Item {i}: {TEMPLATES[i % 4].format(SUBJECTS[i % 20])}" for i in range(words // 8 + 1)]
    return " ".join(" ".join(parts).split()[:words])
