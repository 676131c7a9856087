"""No example has a time limit: the machine may be busy with something else."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
