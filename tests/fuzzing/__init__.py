"""Fuzzing of what reads bytes from outside: `make fuzz` is guided by coverage, `make test` tries a few inputs."""
