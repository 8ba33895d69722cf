"""C++ beside the Python that defines it: compiled once where there is a compiler. Knows nothing of what it compiles."""
