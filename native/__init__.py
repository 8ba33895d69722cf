"""For speed alone: C++ beside the Python that defines it, compiled where there is a compiler; memory in large pages."""
