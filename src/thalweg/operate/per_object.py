"""What is made of parts of a plan, once: a plan is the same objects from batch to batch, too large to be compared."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T")


def once_per_object(most: int) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """The function, called once for the same arguments; so many results are kept, the newest ones. Arguments are held
    with them, so that nothing else gets their identity."""

    def keeping(make: Callable[..., T]) -> Callable[..., T]:
        known: OrderedDict[tuple[int, ...], tuple[tuple[Any, ...], T]] = OrderedDict()

        @wraps(make)
        def found(*arguments: Any) -> T:
            key = tuple(map(id, arguments))
            kept = known.get(key)
            if kept is None:
                kept = known[key] = arguments, make(*arguments)
                if len(known) > most:
                    known.popitem(last=False)
            return kept[1]

        return found

    return keeping
