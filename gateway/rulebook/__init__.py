"""Routing rules as versions, and statistics of the traffic under each.

Not here: what a rule may say, and what follows from it (routing).
"""
