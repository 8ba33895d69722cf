"""Learning on the job: a Bayesian residual, logged exploration, off-policy evaluation and alarms. Pure; no clock."""
