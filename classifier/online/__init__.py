"""Learning on the job: a Bayesian correction, off-policy evaluation and alarms. Pure; no clock."""
