"""Whose packages an import finds in a worker process.

Our packages have names that a model's own code may well use: a repository with ``models/resnet.py`` beside its
``model.py`` is nothing special. So ours are taken out of sight before such code runs. What has been imported goes on
working, for a module keeps what it has imported; where one of ours imports another later, it is shown for that moment.
"""

import builtins
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

OWN_NAMES = frozenset({"backends", "batching", "gateway", "loadtest", "models", "tests"})

ROOT = Path(__file__).parents[2]
"""The directory that our packages are in: of the source tree, or ``site-packages``."""


class OwnPackages:
    """Hides our top-level packages from the import system, and shows them for a while.

    Both change what all threads of the process see.

    Args:
        root: The directory that they are in.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root.resolve()
        self._modules: dict[str, ModuleType] = {}  # of that side which cannot be seen now
        self._finder = _ForeignFinder(self._root)
        self._lock = threading.RLock()
        self._depth = 0  # of `shown` blocks, all in the thread that has the lock
        self._import = builtins.__import__
        self._homes = {(self._root / name).parts for name in OWN_NAMES}

    def hide(self) -> None:
        """From now on our names mean what they would mean if we were not installed. Call it once."""
        if (self._root / "pyproject.toml").is_file():  # nothing but ours is here
            sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != self._root]
        sys.meta_path.insert(0, self._finder)
        builtins.__import__ = self._import_for
        self._swap()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Within the block our names mean our packages again: those of which something was imported before `hide`."""
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                sys.meta_path.remove(self._finder)
                self._swap()
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._swap()
                    sys.meta_path.insert(0, self._finder)

    def _import_for(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002 - callers may name it
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """What an import statement calls; `globals` are of the module that it stands in."""
        if name.partition(".")[0] in OWN_NAMES and level == 0 and globals is not None and self._is_ours(globals):
            with self.shown():
                return self._import(name, globals, locals, fromlist, level)
        return self._import(name, globals, locals, fromlist, level)

    def _is_ours(self, module: Mapping[str, object]) -> bool:
        file = module.get("__file__")
        return isinstance(file, str) and Path(file).resolve().parts[: len(self._root.parts) + 1] in self._homes

    def _swap(self) -> None:
        visible = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in OWN_NAMES}
        for name in visible:
            del sys.modules[name]
        sys.modules.update(self._modules)
        self._modules = visible


class _ForeignFinder:
    """Answers for our names alone, first of all finders: with what others would find elsewhere than under `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or name not in OWN_NAMES:
            return None
        entries = [entry for entry in sys.path if Path(entry).resolve() != self._root]
        found = PathFinder.find_spec(name, entries, target)
        if found is None or self._is_ours(name, found):
            # An editable installation has a finder of its own, which must not be asked.
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return found

    def _is_ours(self, name: str, found: ModuleSpec) -> bool:
        return found.origin is not None and Path(found.origin).resolve().is_relative_to(self._root / name)


def user_code_path(directory: Path) -> None:
    """Let model code import what lies beside it, and one level up: in the version's directory and the model's.

    Args:
        directory: Of the version.
    """
    entries = [str(directory.resolve()), str(directory.resolve().parent)]
    sys.path[:] = [*entries, *(entry for entry in sys.path if entry not in entries)]
