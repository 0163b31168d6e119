"""An S3 server in this process (moto), and storages in it."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from thalweg.state import object_storage

BUCKET = "pipelines"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    from moto.s3.responses import S3Response
    from moto.server import ThreadedMotoServer

    put, one_at_a_time = S3Response._key_response_put, threading.Lock()

    def put_alone(self: Any, *arguments: Any) -> Any:
        """moto looks whether an object is there and puts it afterwards: of two at once both may win. A real store
        decides in one step."""
        with one_at_a_time:
            return put(self, *arguments)

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    S3Response._key_response_put = put_alone
    server.start()
    host, port = server.get_host_and_port()
    urlopen(Request(f"http://{host}:{port}/{BUCKET}", method="PUT"), timeout=10).close()
    yield f"http://{host}:{port}"
    server.stop()
    S3Response._key_response_put = put


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
