"""What a process needs whatever it serves: sockets, children, files that change, tasks that end."""
