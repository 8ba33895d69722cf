"""Making the artefact: needs the graded prompts and minutes of two cores, never a GPU; not imported at run time."""
