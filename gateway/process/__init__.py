"""What any process needs, whatever it serves: sockets, child processes, watched files, background tasks.

Not here: the steps of a request (request), and what is started with which settings (composition).
"""
