"""The configuration file and the environment, validated."""
