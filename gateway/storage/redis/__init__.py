"""State that workers and replicas share in Redis: counters, news, warm prefixes, kept answers."""
