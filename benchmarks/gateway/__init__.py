"""Our gateway beside LiteLLM and TensorZero, in front of one and the same mock, interleaved in one run."""
