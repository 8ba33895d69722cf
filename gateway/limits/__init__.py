"""What keys, teams, models and tiers may use, and how usage is counted.

Not here: budget notices (notices), forecasts of the month's cost (reports).
"""
