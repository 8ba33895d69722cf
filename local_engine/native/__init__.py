"""C++ kernels, compiled once per machine if there is a compiler; the engine works without them."""
