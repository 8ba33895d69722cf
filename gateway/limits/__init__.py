"""What keys, teams, models and tiers may use, and the counting of it."""
