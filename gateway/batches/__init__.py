"""Deferrable requests: uploaded as a file, asked while there is spare capacity, answered in a file."""
