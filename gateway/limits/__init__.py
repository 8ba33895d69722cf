"""What keys, teams, models and tiers may use, and the counting of it.

Not here: who is told that a budget nears its end (notices), what its month will come to (reports).
"""
