"""What a GPU costs, where break-even lies, what other rules would have cost. Pure.

Not here: what tokens cost (pricing), reading the books and shaping an answer (reports).
"""
