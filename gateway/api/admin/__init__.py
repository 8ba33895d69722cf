"""The admin API: one file for each kind of thing it shows or changes, all behind one guard."""
