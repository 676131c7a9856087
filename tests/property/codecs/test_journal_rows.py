"""Rows encoded from columns decode to the same columns; damage is reported."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.codecs.test_bookkeeper_metadata import SECRET, ledgers, together
from trueup.connectors.bookkeeper.metadata import metadata
from trueup.state.bookkeeper.ledgers import EMPTY
from trueup.state.bookkeeper.observations import LedgerRecord
from trueup.state.common.errors import BadBytes
from trueup.streams.bookkeeper.codec import ledger_bodies, ledger_rows
from trueup.streams.journal.codec import encode


@given(st.lists(st.tuples(ledgers(), st.sampled_from([1, 2, 3, 3, 3])), max_size=12))
def test_ledgers_read_as_the_columns_that_were_written(drawn: list[tuple[LedgerRecord, int]]) -> None:
    batch = together([(record, metadata.encode(record, version, SECRET)) for record, version in drawn])
    found = ledger_rows(ledger_bodies(batch))
    assert _plain(found) == _plain(batch.ledgers)


def _plain(rows: Any) -> list[Any]:
    columns = [np.asarray(getattr(rows, name), getattr(EMPTY, name).dtype).tolist() for name in EMPTY.__slots__[:-3]]
    del columns[EMPTY.__slots__.index("isolation")]
    isolations = [rows.isolations[code] for code in rows.isolation.tolist()]
    return [*columns, [rows.names[code] for code in rows.members.tolist()], isolations]


@given(ledgers(), st.data())
def test_a_truncated_record_is_reported_with_its_place(record: LedgerRecord, data: st.DataObject) -> None:
    whole = encode("ledgers", {**record, "custom": {}, "error": ""})
    cut = data.draw(st.integers(0, len(whole) - 3))  # the remaining fields are not decoded
    with pytest.raises(BadBytes, match="of a record of the topic ledgers"):
        ledger_rows([whole, whole[:cut], whole])
