"""What workers and replicas share: counters, news, warm prefixes, kept answers."""
