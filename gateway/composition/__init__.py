"""The composition root: a deployment's files and settings made into running parts."""
