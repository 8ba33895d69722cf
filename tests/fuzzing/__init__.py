"""What comes from outside, tried with bytes nobody wrote: `make fuzz` is led by coverage, `make test` tries a few."""
