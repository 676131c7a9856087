"""How tests run what the application has run by its supervisor."""

import threading

from streams.supervisor import Supervisor

supervisor = Supervisor(threading.Event(), lambda _: None)
run = supervisor.run
