"""Makes the artefact: needs the graded prompts and minutes on two cores, never a GPU; not imported at run time."""
