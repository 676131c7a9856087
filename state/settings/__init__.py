"""The settings file as typed values, and checks across sections.

What enters: nested mappings from YAML, environment and config topic. What leaves: frozen dataclasses, or a
`BadSettings` with every problem at once.

- ``section``: what a section is: a dataclass of keys (`state.common.options.key`), or a table of such dataclasses.
- ``settings``: the sections of the application, and `parse` and `change`. Start here.
- ``callers``, ``spark``, ``kafka``, ``rocketmq``: sections with checks of their own.
- ``kafka_security``, ``zookeeper_security``: one vocabulary for login and TLS, whatever client connects.

- ``roles``, ``tokens``, ``claims``: who calls the API, and what they may do. `streams.web` authenticates callers with
  them: from a token, the claims of an OpenID Connect token, or the headers of a proxy. The file of tokens has their
  digests, never the tokens. A line or claim that is not understood admits nobody.

Sections of a stream are in the package of the stream, for example `state.placement.settings`. Code reads a section by
its dataclass.

What must stay: a message never shows a value that can be a secret. A key that can change at run time is ``live``; the
config topic can change no other one, and no mode beyond ``access.modes_at_most``.
"""
