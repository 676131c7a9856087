"""The settings file as typed values, and checks across sections.

What enters: nested mappings from YAML, environment and config topic. What leaves: frozen dataclasses, or a
`BadSettings` with every problem at once.

- ``section``: what a section is: a dataclass of keys (`state.common.options.key`), or a table of such dataclasses.
- ``settings``: the sections of the application, and `parse` and `change`. Start here.
- ``callers``, ``spark``: sections with checks of their own.
- ``kafka_security``, ``zookeeper_security``: one vocabulary for login and TLS, whatever client connects.

Sections of a stream are in the package of the stream, for example `state.placement.settings`; those of Kafka and
RocketMQ clusters are in `state.kafka` and `state.rocketmq`. Code reads a section by its dataclass.

What must stay: a message never shows a value that can be a secret. A key that can change at run time is ``live``; the
config topic can change no other one, and no mode beyond ``access.modes_at_most``.
"""
