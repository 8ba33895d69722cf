"""What a GPU costs, where break-even lies, what other rules would have cost. Pure."""
