"""Model files: where they come from, what they hold, and whether they are whole."""
