"""Small C++ kernels, compiled once per machine when a compiler is there; the engine works without them."""
