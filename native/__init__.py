"""Optional speed-ups: C++ beside the Python that defines it, compiled if there is a compiler; memory in huge pages."""
