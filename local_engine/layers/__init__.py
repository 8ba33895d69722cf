"""The parts of a transformer block, each a small callable on plain tensors."""
