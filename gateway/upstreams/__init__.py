"""What this process knows about the places that requests go to: load, and warm prefixes."""
