"""An S3 server in this process (moto), and storages in it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from thalweg.state import object_storage

BUCKET = "pipelines"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    urlopen(Request(f"http://{host}:{port}/{BUCKET}", method="PUT"), timeout=10).close()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def new_place(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """URLs below prefixes that no other test has; what is read of them is cached for this test alone."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "very secret",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "THALWEG_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_storage, "_stores", {})  # they keep the endpoint they were opened with
    return lambda: f"s3://{BUCKET}/{secrets.token_hex(4)}/state"
