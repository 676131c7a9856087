"""TLS settings of bookie connections."""

import pytest

from trueup.state.common.errors import BadSettings
from trueup.streams.bookkeeper.cluster import bookie_tls


def test_without_options_bookies_are_spoken_to_in_plain() -> None:
    assert bookie_tls({}) is None


def test_the_host_name_is_not_checked_where_that_is_disabled() -> None:
    context = bookie_tls({"tls.ca": "system", "tls.check.host": "false"})
    assert context is not None
    assert not context.check_hostname


@pytest.mark.parametrize("options", [{"tls.caa": "x"}, {"tls.ca": "/no/such/file"}])
def test_a_wrong_option_is_reported_under_its_key(options: dict[str, str]) -> None:
    with pytest.raises(BadSettings, match=r"cluster\.bookies\.tls\."):
        bookie_tls(options)
