"""The local engine on CPU beside transformers and llama.cpp: same weights, same machine, one run, ratios."""
