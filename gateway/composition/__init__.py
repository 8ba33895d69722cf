"""The composition root: a deployment's files and settings made into running parts.

Alone it names concrete stores, backends and classifiers. Not here: what those files may say (config).
"""
