"""Callers of the API: roles and tokens.

What enters: a token, or what a provider or a proxy says about a caller. What leaves: a name and a role, or nothing.

- ``callers``: the roles, each of which includes those below it.
- ``tokens``: the file of tokens. It has their digests, never the tokens.
- ``claims``: name and role from the claims of an OpenID Connect token, or from the headers of a proxy.

`streams.web` authenticates callers with it. A line or claim that is not understood admits nobody.
"""
