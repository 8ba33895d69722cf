"""What a process needs whatever it serves: sockets, children, files that change, tasks that end.

Not here: a request's steps (request), and what is started with which settings (composition).
"""
