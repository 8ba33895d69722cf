"""The clients that people use, unmodified, against a running gateway: `make test-clients`."""
