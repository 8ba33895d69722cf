"""Routing rules as versions, and what traffic has come to under each.

Not here: what a rule may say, and what follows from it (routing).
"""
