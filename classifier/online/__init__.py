"""Learning on the job: a Bayesian residual, off-policy evaluation and alarms. Pure; no clock."""
