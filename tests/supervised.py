"""Runs tasks in tests as the application's supervisor runs them."""

import threading

from trueup.streams.runtime.supervisor import Supervisor

supervisor = Supervisor(threading.Event(), lambda _: None)
run = supervisor.run
