"""Online learning: a Bayesian correction, off-policy evaluation and alarms. Pure; no clock."""
