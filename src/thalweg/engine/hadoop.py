"""Files of any place that Spark can write to, through Hadoop's own interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession


class HadoopFiles:
    """A directory and what lies below it. Names are relative to it; what Hadoop raises is passed on."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root
        self._jvm: Any = spark._jvm
        state: Any = spark._jsparkSession.sessionState()  # as the writer of this session would find the place
        self._root = self._jvm.org.apache.hadoop.fs.Path(root)
        self._files = self._root.getFileSystem(state.newHadoopConf())

    def locate(self, name: str) -> str:
        return str(self._path(name).toString())

    def names(self, name: str) -> list[str]:
        """What a directory holds; nothing where there is none."""
        path = self._path(name)
        if not self._files.exists(path):
            return []
        return sorted(str(status.getPath().getName()) for status in self._files.listStatus(path))

    def walk(self, name: str) -> Iterator[str]:
        """The files below a directory, at any depth, without those that Spark's readers do not see."""
        for status in sorted(self._files.listStatus(self._path(name)), key=lambda s: str(s.getPath().getName())):
            found = str(status.getPath().getName())
            if found.startswith(("_", ".")):
                continue
            if status.isDirectory():
                yield from (f"{found}/{below}" for below in self.walk(f"{name}/{found}"))
            else:
                yield found

    def size(self, name: str) -> int | None:
        """None where there is no such file."""
        path = self._path(name)
        return int(self._files.getFileStatus(path).getLen()) if self._files.exists(path) else None

    def read(self, name: str) -> bytes:
        stream = self._files.open(self._path(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        """Whole or not at all: under another name first."""
        path, hidden = self._path(name), self._path(f"{name}.half")
        stream = self._files.create(hidden, True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
        self._files.delete(path, False)
        self._rename(hidden, path)

    def move(self, name: str, to: str) -> None:
        path = self._path(to)
        self._files.mkdirs(path.getParent())
        self._rename(self._path(name), path)

    def _rename(self, path: Any, to: Any) -> None:
        if not self._files.rename(path, to):
            raise OSError(f"{path.toString()} could not be renamed to {to.toString()}")

    def delete(self, name: str) -> None:
        """With all that is below it; nothing where there is none."""
        self._files.delete(self._path(name), True)

    def objection(self) -> str | None:
        """Why nothing can be written here, as far as can be told without writing."""
        path = self._root
        while not self._files.exists(path):
            path = path.getParent()
            if path is None:
                return None
        if not self._files.getFileStatus(path).isDirectory():
            return f"{path.toString()} is a file, not a directory"
        actions = self._jvm.org.apache.hadoop.fs.permission.FsAction
        self._files.access(path, actions.WRITE_EXECUTE)
        return None

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name) if name else self._root
