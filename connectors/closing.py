"""What a ``with`` statement needs of everything that is closed in the end."""

from types import TracebackType
from typing import Self


class Closing:
    """Closes itself at the end of a ``with`` block, whatever happened in it."""

    def close(self) -> None:
        """Let go of what it holds."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
