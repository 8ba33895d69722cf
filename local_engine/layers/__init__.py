"""The parts of a transformer block, each a small callable over plain tensors."""
