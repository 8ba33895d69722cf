"""The stores of `gateway/stores.py`, one file each."""
