"""`python -m gateway.workers` is what a supervisor starts: a worker, with the two ends it hangs on."""

import sys

from gateway.workers.worker import main

raise SystemExit(main([int(number) for number in sys.argv[1:3]]))
