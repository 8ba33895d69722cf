"""The finance and admin web UI: a client of the gateway's HTTP API and of nothing else."""
