"""What this process knows of where requests go: load, and which prefixes are warm there."""
