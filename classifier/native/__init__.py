"""Reads a prompt in C++, compiled once per machine; `classifier.projection` does the same without a compiler."""
