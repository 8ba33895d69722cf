"""What a GPU costs, where break-even lies, what other rules would have cost. Pure.

Not here: token prices (pricing), reading the books and shaping answers (reports).
"""
