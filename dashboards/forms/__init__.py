"""What the pages' forms share: fields, their mistakes in words, and input that survives a session."""
