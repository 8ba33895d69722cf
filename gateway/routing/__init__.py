"""Deciding: rules, snapshot and decide(). Pure: no clock, no IO, no randomness of its own."""
