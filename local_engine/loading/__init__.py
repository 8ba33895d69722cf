"""Model files: where they come from, what they contain, and whether they are intact."""
