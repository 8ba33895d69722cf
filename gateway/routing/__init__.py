"""Deciding: rules, snapshot and decide(). Pure: no clock, no IO, no randomness of its own.

Not here: versions of rules and who changed them (rulebook), the current state of backends (upstreams).
"""
