"""How tests run what the application has run by its supervisor."""

import threading

from trueup.streams.runtime.supervisor import Supervisor

supervisor = Supervisor(threading.Event(), lambda _: None)
run = supervisor.run
