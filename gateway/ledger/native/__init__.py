"""A thread that syncs files, in C++."""
