"""The configuration file and the environment, validated.

Not here: what rules may say and which are active (routing, rulebook), what a price means (pricing).
"""
