"""The faults that other tests inject are those that they name."""

import socket

import pytest
import redis

from tests.harness import server
from tests.proxy import Proxy


@pytest.fixture
def proxy():
    with Proxy(server("EPSILOND_TEST_REDIS_URL")) as made:
        yield made


def client(proxy, seconds):
    return redis.Redis.from_url(proxy.url, socket_timeout=seconds, retry=None)


def test_it_passes_hangs_and_heals(proxy):
    with client(proxy, 20) as patient, client(proxy, 0.2) as hasty:
        assert patient.ping() and hasty.ping()
        proxy.hang()
        with pytest.raises(redis.TimeoutError):
            hasty.ping()
        with pytest.raises(redis.TimeoutError), client(proxy, 0.2) as new:
            new.ping()
        proxy.heal()
        assert patient.ping() and hasty.ping()


def test_it_refuses_and_heals_on_the_same_port(proxy):
    with client(proxy, 20) as broker:
        assert broker.ping()
        proxy.refuse()
        with pytest.raises(redis.ConnectionError):
            broker.ping()
        host, port = proxy.url.removeprefix("redis://").partition("/")[0].split(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))
        proxy.heal()
        assert broker.ping()
