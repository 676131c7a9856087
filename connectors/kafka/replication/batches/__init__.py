"""Record batches, copied without decompression.

The path ``batches`` copies from the leaders of the source to the leaders of the target, exactly once. The target broker
rejects a repeated batch by producer id and sequence number, which this package chooses.

- ``copier``: one lease: it drives all others. ``fetcher``: the source. ``sender``: the target.
- ``partition``: the copy of one partition as a state machine without I/O. Begin here.
- ``position``: its stored state: how many records were written under each producer id.
- ``resume``: the state at the target, compared with the position. ``stored``: records beyond it, one by one.
- ``ends``: how far the target has nothing that the position does not count.
- ``loop_filter``: the producer id at the target, or that a batch is dropped.

What must stay: a batch that is not understood stops its partition. Sequence numbers have no gap: a broker without the
producer's state would accept what follows a rejected batch.
"""
