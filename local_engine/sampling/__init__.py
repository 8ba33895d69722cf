"""From logits to a token: parameters, constraints, drawing, and log-probabilities."""
