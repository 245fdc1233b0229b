"""This module knows the new names of classes that have moved since objects of them were stored.

A pickle, and an object of a registered class, is stored with the module and the name of its class. Both are
looked up here before the class is looked for (pickles.py, objects.py).
"""

from __future__ import annotations

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["is_used", "new_name", "rename_classes", "split"]

_NEW: dict[str, str] = {}


def rename_classes(names: Mapping[str, str]) -> None:
    """Read stored objects whose class has moved: `names` maps old names in full to new ones.

    `{"shop.Order": "shop.models.Order"}` is about one class or function, with the names nested in it, and
    `{"shop.*": "store.*"}` about all of a module and of the modules below it. It holds for all databases of
    the process, from now on; a name given again is replaced. A list in `pickle=` has the new names. Raises
    `ValueError` for a name without a module.

    >>> import pellucid
    >>> pellucid.rename_classes({"shop.Order": "shop.models.Order", "old_shop.*": "shop.*"})
    """
    checked = {}
    for old, new in names.items():
        for name in (old, new):
            if not isinstance(name, str):
                raise TypeError(f"rename_classes() wants names in full, such as 'shop.Order', not {name!r}")
            module, _, last = name.rpartition(".")
            if not module or not last or "*" in module:
                raise ValueError(
                    f"rename_classes(): {name!r} names no class; write the module before the name, as in "
                    '"shop.models.Order" or "shop.models.*"'
                )
        if old.endswith(".*") != new.endswith(".*"):
            raise ValueError(
                f"rename_classes(): {old!r} and {new!r} are not both a class, or both all of a module"
            )
        checked[old] = new
    _NEW.update(checked)


def new_name(name: str) -> str:
    """Return the name in full that is used now for a stored name in full."""
    # A class may have moved more than once. A circle of renames ends where it began.
    for _ in range(len(_NEW)):
        found = _renamed(name)
        if found == name:
            break
        name = found
    return name


def _renamed(name: str) -> str:
    if name in _NEW:
        return _NEW[name]
    # The longest old name wins.
    holder = name
    while True:
        holder, _, _ = holder.rpartition(".")
        if not holder:
            return name
        rest = name[len(holder) :]
        if holder in _NEW:
            return _NEW[holder] + rest
        if f"{holder}.*" in _NEW:
            return _NEW[f"{holder}.*"].removesuffix(".*") + rest


def split(name: str) -> tuple[str, str]:
    """Return the module of a name in full, and the name in it, which has dots for a nested class."""
    import importlib

    parts = name.split(".")
    for count in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:count])
        try:
            importlib.import_module(module)
        except ImportError:
            continue
        return module, ".".join(parts[count:])
    module, _, last = name.rpartition(".")
    return module, last


def is_used() -> bool:
    """Say whether any class has a new name."""
    return bool(_NEW)
