"""Workers: several gateway processes on one port, and the supervisor that keeps them.

The *supervisor* has no house. It reads the configuration, holds the listening socket, and starts
*workers*: fresh interpreters, so that none has anything of another's, no random state and no
connection. The *doorman* lets connections in and hands each to the worker that has the fewest; so none
is lost with a worker that dies before it was handed over, and the kernel's hash cannot favour one.
A *slot* is a worker's numbered place, taken by one process after another. A *line* joins the
supervisor and a process; where it breaks, the other side is gone.
"""
