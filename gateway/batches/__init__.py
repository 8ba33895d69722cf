"""Requests that can wait: uploaded as a file, asked one after the other while there is room, answered in a file."""
