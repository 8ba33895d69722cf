"""How the classifier learns from traffic, and which classifier is in force."""
