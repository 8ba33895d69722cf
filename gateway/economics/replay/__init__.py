"""Logged traffic decided again under other rules, prices, models or GPUs."""
