"""This module has the methods of a cache that tasks await; asyncio is imported when one is called."""

from __future__ import annotations

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from typing import Any

__all__ = ["ForTasks"]


class ForTasks:
    """What a cache does in a task: reads run at once, and writes in a thread."""

    if TYPE_CHECKING:
        get: Callable[..., Any]
        set: Callable[..., Any]
        delete: Callable[..., Any]

    async def aget(self, key: Any, default: Any = None, expire_time: bool = False, tag: bool = False) -> Any:
        """Do `get` in a task. It waits for nothing, so it runs at once."""
        return self.get(key, default, expire_time, tag)

    async def aset(
        self, key: Any, value: Any, expire: float | timedelta | None = None, tag: Any = None
    ) -> bool:
        """Do `set` in a thread, so that the loop does not wait for other writers.

        If the task is cancelled, the value is stored nonetheless.
        """
        from pellucid.cache.tasks import in_thread

        return await in_thread(self.set, key, value, expire, tag)  # type: ignore[no-any-return]

    async def adelete(self, key: Any) -> bool:
        """Do `delete` in a thread, so that the loop does not wait for other writers."""
        from pellucid.cache.tasks import in_thread

        return await in_thread(self.delete, key)  # type: ignore[no-any-return]
