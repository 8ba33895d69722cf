"""Deciding: rules, snapshot and decide(). Pure: no clock, no IO, no randomness of its own.

Not here: versions of rules and who changed them (rulebook), what is known of backends just now (upstreams).
"""
