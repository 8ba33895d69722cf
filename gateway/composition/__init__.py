"""The composition root: turns a deployment's files and settings into running parts.

Only it names concrete stores, backends and classifiers. Not here: what those files may say (config).
"""
