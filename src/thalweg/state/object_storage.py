"""State in an object store: below a prefix of a bucket, through obstore.

An object is there once the request that made it is answered, so there is nothing to sync and nothing to sweep.
Objects that never change are kept on the worker's disk as well (`object_cache`). No name of theirs is used twice: the
cache of another host would not know.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa

from thalweg.errors import (
    StateError,
    cannot_create_once,
    forked_store,
    missing_bucket,
    missing_file,
    no_object_stores,
    secrets_in_url,
    store_refuses,
    unknown_scheme,
    unreachable_store,
    unusable_store,
)
from thalweg.state.object_cache import ObjectCache, Spool, worker_cache
from thalweg.state.ownership import check_objects, mark_objects
from thalweg.state.storage import Data, Hold, Holes, NoHold, ObjectWriter, Stamp

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss")
_IMMUTABLE = ("buckets/", "results/", "tables/", "prepared/", "sources/")
_PROBE = ".probe-"
_WRITER = "thalweg-writer"
"""The attribute that says whose an object is that was created once."""
_IN_PARTS = "buckets/"
"""Of other objects everything is read."""
_LEAST_IN_PARTS = 1 << 20
"""Bytes of an object that is fetched in parts: a smaller one takes longer to ask for than to send."""
_COALESCED = 1 << 18
"""Bytes between two parts that are fetched rather than asked for apart."""
_PART = 8 << 20
_TRIES = 3
_VENDORS = {"s3": "AWS", "s3a": "AWS", "gs": "GOOGLE"}
_SECRET = re.compile(r"(AWS|AZURE|GOOGLE)_.*(KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL)")


@dataclass(frozen=True)
class ObjectStorage:
    place: str
    """The URL, which does not end with `/`. Credentials and endpoint come from the environment of each process."""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """What obstore calls config, for what the environment does not say. No secrets: tasks are sent with it."""

    @classmethod
    def at(cls, url: str, **options: str) -> ObjectStorage:
        parts = urlsplit(url)
        if parts.scheme not in SCHEMES or not parts.netloc:
            raise unknown_scheme(_bare(url), SCHEMES)
        if parts.password is not None or parts.query or parts.fragment:
            raise secrets_in_url(_bare(url))
        return cls(url.rstrip("/"), tuple(sorted(options.items())))

    def claim(self) -> None:
        with _explained(self.place):
            check_objects(self, self._some_names)
            self._check_create()
            mark_objects(self)

    def check(self) -> None:
        with _explained(self.place):
            check_objects(self, self._some_names)

    def _some_names(self) -> list[str]:
        """Of the first objects, without what a claim that died has left."""
        for names in self._listed("", 50):
            tops = {name.split("/")[0] for name in names}
            if found := sorted(top for top in tops if not top.startswith(_PROBE)):
                return found[:5]
        return []

    def _check_create(self) -> None:
        """Some stores take the condition and do not heed it."""
        probe = f"{_PROBE}{secrets.token_hex(8)}"
        try:
            if not self.create(probe, b"first"):
                raise cannot_create_once(self.place, "an object that nobody had made was there")
            if self.create(probe, b"second"):
                raise cannot_create_once(self.place, "an object could be created twice")
        except NotImplementedError as error:
            raise cannot_create_once(self.place, _first_line(error)) from error
        finally:
            self.delete(probe)

    def hold(self) -> Hold:
        return NoHold()

    def sweep(self) -> None:
        """A writer leaves nothing that has a name."""

    def locate(self, name: str) -> str:
        return f"{self.place}/{name}"

    def stamp(self, name: str) -> Stamp | None:
        import obstore

        if name.startswith(_IMMUTABLE) and (known := self._cache().stamp(self.locate(name))) is not None:
            return known
        try:
            with self._requests(name):
                found = obstore.head(self._store(), name)
        except FileNotFoundError:
            return None
        stamp = (_tag(found), _size(found))
        if name.startswith(_IMMUTABLE):
            self._cache().note(self.locate(name), stamp)
        return stamp

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        try:
            with self._requests(name):
                return self._read(name, start, length)
        except FileNotFoundError as error:
            raise missing_file(self.locate(name)) from error

    def _read(self, name: str, start: int, length: int | None) -> bytes:
        import obstore
        from obstore.exceptions import BaseError

        if start == 0 and length is None:
            return bytes(obstore.get(self._store(), name).bytes())
        try:
            if length is None:
                return bytes(obstore.get(self._store(), name, options={"range": {"offset": start}}).bytes())
            if length:
                return bytes(obstore.get(self._store(), name, options={"range": (start, start + length)}).bytes())
        except BaseError:  # a range that starts behind the end is refused
            if start < _size(obstore.head(self._store(), name)):
                raise
            return b""
        obstore.head(self._store(), name)
        return b""

    def find(self, name: str) -> bytes | None:
        import obstore

        try:
            with self._requests(name):
                return bytes(obstore.get(self._store(), name).bytes())
        except FileNotFoundError:
            return None

    def open(self, name: str) -> pa.Buffer:
        try:
            with self._requests(name):
                return self._open_cached(name) if name.startswith(_IMMUTABLE) else self._fetch(name)
        except FileNotFoundError as error:
            raise missing_file(self.locate(name)) from error

    def open_in_parts(self, name: str) -> Holes | None:
        if not name.startswith(_IN_PARTS) or self._cache().has(self.locate(name)):
            return None
        stamp = self.stamp(name)
        if stamp is None or int(stamp[1]) < _LEAST_IN_PARTS:
            return None
        copy = self._cache().open_copy(self.locate(name), stamp)

        def fetch(spans: Sequence[tuple[int, int]]) -> None:
            if spans:
                copy.fill(spans, self._read_spans(name, spans))

        return Holes(copy.content, fetch)

    def _read_spans(self, name: str, spans: Sequence[tuple[int, int]]) -> list[memoryview]:
        import obstore

        starts, ends = [low for low, _ in spans], [high for _, high in spans]
        try:
            with self._requests(name):
                found = obstore.get_ranges(self._store(), name, starts=starts, ends=ends, coalesce=_COALESCED)
        except FileNotFoundError as error:
            raise missing_file(self.locate(name)) from error
        return [memoryview(data) for data in found]

    def _fetch(self, name: str) -> pa.Buffer:
        import obstore

        return pa.py_buffer(obstore.get(self._store(), name).bytes())

    def _open_cached(self, name: str) -> pa.Buffer:
        import obstore

        cache, place = self._cache(), self.locate(name)
        found = cache.find(place)
        if found is not None:
            return found
        result = obstore.get(self._store(), name)
        with cache.spool() as spool:
            for chunk in result.stream(min_chunk_size=_PART):
                spool.write_all(memoryview(chunk))
            if spool.length != (size := _size(result.meta)):
                raise OSError(errno.EIO, f"{spool.length} of {size} bytes came", place)
            content = spool.content()
            cache.keep(place, spool, _tag(result.meta))
        return content

    def names(self, prefix: str) -> list[str]:
        with self._requests(prefix):
            return sorted(name for names in self._listed(prefix, 1000) for name in names)

    def _listed(self, prefix: str, at_once: int) -> Iterator[list[str]]:
        import obstore

        for objects in obstore.list(self._store(), prefix or None, chunk_size=at_once):
            yield [found["path"] for found in objects]

    def write(self, name: str, data: Data, durable: bool = True) -> None:
        self._put(name, data)
        self._cache().drop(self.locate(name))

    def _put(self, name: str, data: Data) -> str:
        """Large ones in parts, side by side; they become one object with the last request."""
        import obstore

        with self._requests(name):
            done = obstore.put(self._store(), name, memoryview(data).cast("B"), chunk_size=_PART)
        return done["e_tag"] or ""

    def create(self, name: str, data: Data) -> bool:
        """The library repeats requests whose answer was lost. So if the name is taken, we look by whom."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError

        token = secrets.token_hex(16)
        with self._requests(name):
            for _ in range(_TRIES):
                try:
                    obstore.put(
                        self._store(),
                        name,
                        bytes(data),
                        mode="create",
                        attributes={_WRITER: token},
                        use_multipart=False,
                    )
                    return True
                except AlreadyExistsError:
                    if (writer := self._writer_of(name)) is not None:
                        return writer == token
                except BaseError:
                    if self._writer_of(name) != token:
                        raise
                    return True
        raise OSError(errno.EBUSY, "the store says the name is taken, and has no such object", self.locate(name))

    def _writer_of(self, name: str) -> str | None:
        """Empty for an object that was not made by `create`; None where there is none."""
        import obstore

        try:
            return str(obstore.get(self._store(), name).attributes.get(_WRITER, ""))
        except FileNotFoundError:
            return None

    def writer(self, name: str) -> ObjectWriter:
        return _Upload(self, name)

    def delete(self, name: str) -> None:
        import obstore

        with contextlib.suppress(FileNotFoundError), self._requests(name):
            obstore.delete(self._store(), name)
        self._cache().drop(self.locate(name))

    # -- what the verbs stand on -----------------------------------------------------------------------------

    def _store(self) -> ObjectStore:
        return _open_store(self.place, self.options)

    def _cache(self) -> ObjectCache:
        return worker_cache()

    @contextlib.contextmanager
    def _requests(self, name: str) -> Iterator[None]:
        """A request that fails is an OSError, as on a disk."""
        from obstore.exceptions import BaseError

        try:
            yield
        except BaseError as error:
            raise OSError(errno.EIO, _first_line(error), self.locate(name)) from _LibraryError(error)


class _Upload(ObjectWriter):
    """It grows on the local disk, where the cache wants it, and is sent whole: a writer that dies leaves nothing."""

    def __init__(self, storage: ObjectStorage, name: str) -> None:
        self._storage = storage
        self._name = name
        self._cache = storage._cache()
        self._spool: Spool = self._cache.spool()
        super().__init__(self._spool, buffer_size=1 << 17)

    def finish(self, durable: bool = True) -> None:
        try:
            self.flush()
            place = self._storage.locate(self._name)
            self._cache.drop(place)
            tag = self._storage._put(self._name, memoryview(self._spool.content()))
            if self._name.startswith(_IMMUTABLE) and tag:
                self._cache.keep(place, self._spool, tag)
            self.close()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        self._spool.is_abandoned = True
        self.close()


# -- stores ----------------------------------------------------------------------------------------------------

_stores: dict[tuple[str, tuple[tuple[str, str], ...], int], ObjectStore] = {}
_user: int | None = None
"""The first process that used the library, of those that this one was forked from: in others it hangs."""


def _open_store(place: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    global _user
    key = (place, options, os.getpid())
    found = _stores.get(key)
    if found is None:
        if _user not in (None, os.getpid()):
            raise forked_store(place)
        found = _stores[key] = _connect(place, options)
        _user = os.getpid()
    return found


def _connect(place: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    """A wrong endpoint fails within seconds; a store that is busy is asked again for as long."""
    try:
        from obstore.store import from_url
    except ImportError as error:
        raise no_object_stores(place) from error
    retries: RetryConfig = {
        "max_retries": 6,
        "retry_timeout": timedelta(seconds=8),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
    }
    client: ClientConfig = {
        "connect_timeout": "3s",
        "read_timeout": "10s",
        "timeout": "5m",
        "allow_http": _allows_http(place),
    }
    config: Any = dict(options)
    return from_url(place, config=config, client_options=client, retry_config=retries)


def _allows_http(place: str) -> bool:
    """Given options of a client replace those of the environment, so this one is read here."""
    vendor = _VENDORS.get(urlsplit(place).scheme, "AZURE")
    return os.environ.get(f"{vendor}_ALLOW_HTTP", "").lower() in ("1", "true", "yes", "on")


# -- errors ----------------------------------------------------------------------------------------------------


class _LibraryError(Exception):
    """An error of the library without its text, which holds requests with all they send."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)


@contextlib.contextmanager
def _explained(place: str) -> Iterator[None]:
    """What a user may have got wrong, told as such."""
    try:
        from obstore.exceptions import BaseError
    except ImportError as error:
        raise no_object_stores(place) from error
    try:
        yield
    except (BaseError, OSError) as error:
        raise _explain(place, error) from _LibraryError(error)


def _explain(place: str, error: Exception) -> StateError:
    detail = _first_line(error)
    if re.search(r"status code: 40[13]|lacked|[Cc]redential|AccessKey|InvalidSignature", detail):
        return store_refuses(place, detail)
    if "status code: 404" in detail:
        return missing_bucket(place, detail)
    if "error sending request" in detail or "timed out" in detail:
        return unreachable_store(place, detail)
    return unusable_store(place, detail)


def _first_line(error: BaseException) -> str:
    """Without queries, which may be signed, and without anything that the environment holds as a secret."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    line = re.sub(r":? ?<\?xml.*|\?\S+", "", (text.splitlines() or [""])[0])
    for name, value in os.environ.items():
        if _SECRET.match(name) and len(value) > 3:
            line = line.replace(value, "***")
    return line[:400]


def _bare(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _tag(meta: Any) -> str:
    return str(meta["e_tag"] or meta["last_modified"])


def _size(meta: Any) -> int:
    return int(meta["size"])
