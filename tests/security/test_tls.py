"""Scenario 48, TLS: old versions, clients without a certificate, names that differ, certificates that change."""

import contextlib
import json
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from fencepost.client import Admin, Client, NewTopic
from fencepost.client.errors import ClientError
from fencepost.config import broker_config
from fencepost.embedded import Broker
from fencepost.security_config import protocol_of
from fencepost.settings import InvalidSetting
from fencepost.shell.running_broker import CannotStart
from tests.peers.raw import RawClient
from tests.security.secured import Authority, SecuredFencepost, own_options
from tests.support.patience import patient

SECONDS = patient(60.0)


def shake_hands(broker: SecuredFencepost, listener: str, context: ssl.SSLContext, name: str = "localhost") -> bytes:
    """The certificate that the broker shows."""
    address = ("127.0.0.1", broker.ports[listener])
    with socket.create_connection(address, SECONDS) as raw, context.wrap_socket(raw, server_hostname=name) as secured:
        certificate = secured.getpeercert(binary_form=True)
        assert certificate is not None
        return certificate


def trusting(broker: SecuredFencepost) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(broker.authority.file))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_of_tls_are_refused(broker: SecuredFencepost, version: ssl.TLSVersion) -> None:
    context = trusting(broker)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with pytest.raises((ssl.SSLError, ConnectionError)):
        shake_hands(broker, "SASL_SSL", context)
    for good in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = trusting(broker)
        context.minimum_version = context.maximum_version = good
        assert shake_hands(broker, "SASL_SSL", context)


def test_a_client_without_a_certificate_is_refused_where_one_is_required(
    broker: SecuredFencepost, tmp_path: Path
) -> None:
    options = own_options(broker, "SSL")
    with Admin(broker.address_of("SSL"), **options) as admin:
        assert admin.describe_cluster().brokers
    foreign = Authority(tmp_path, "somebody else").sign("stranger.pem")
    stranger = options | {"ssl.certificate.location": str(foreign), "ssl.key.location": str(foreign)}
    nobody = {name: value for name, value in options.items() if name not in stranger or "ssl.ca" in name}
    nobody["security.protocol"] = "SSL"
    for refused in (stranger, nobody):
        with pytest.raises(ClientError):
            Admin(broker.address_of("SSL"), **refused)
    # Whoever runs the broker is told why.
    broker.wait_for_log("PEER_DID_NOT_RETURN_A_CERTIFICATE")
    broker.wait_for_log("CERTIFICATE_VERIFY_FAILED")
    lines = [line for line in broker.log_file.read_text().splitlines() if "PEER_DID_NOT_RETURN" in line]
    told = json.loads(lines[0])
    assert (told["event"], told["peer"], told["listener"]) == ("AuthenticationFailed", "127.0.0.1", "SSL")


@pytest.mark.parametrize("limit", ["max_connections", "max_connections_per_ip"])
def test_handshakes_that_are_never_finished_count_as_connections(tmp_path: Path, limit: str) -> None:
    with SecuredFencepost(tmp_path, {"SSL": "SSL"}, **{limit: "3"}) as broker, contextlib.ExitStack() as silent:
        address = ("127.0.0.1", broker.ports["SSL"])
        for _ in range(3):
            silent.enter_context(socket.create_connection(address, SECONDS))
        with socket.create_connection(address, SECONDS) as one_too_many:
            assert one_too_many.recv(1) == b""
        broker.wait_for_log("ConnectionRefused")
        silent.close()
        # As soon as they are gone there is room again.
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                with Admin(broker.address_of("SSL"), **own_options(broker, "SSL")) as admin:
                    assert admin.describe_cluster().brokers
                break
            except ClientError:
                assert time.monotonic() < deadline


def test_where_a_certificate_is_only_asked_for_one_may_come_without(tmp_path: Path) -> None:
    settings = {"listener_name_ssl_ssl_client_auth": "requested"}
    listeners = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL"}
    with SecuredFencepost(tmp_path, listeners, **settings) as broker:
        options = own_options(broker, "SSL")
        nobody = {name: value for name, value in options.items() if name in ("security.protocol", "ssl.ca.location")}
        for welcome in (options, nobody):
            with Admin(broker.address_of("SSL"), **welcome) as admin:
                assert admin.describe_cluster().brokers
        foreign = Authority(tmp_path / "foreign", "somebody else").sign("stranger.pem")
        with pytest.raises(ClientError):
            Admin(
                broker.address_of("SSL"),
                **options | {"ssl.certificate.location": str(foreign), "ssl.key.location": str(foreign)},
            )


def test_a_name_that_is_not_the_brokers_is_noticed_and_harms_nobody(broker: SecuredFencepost) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(broker, "SASL_SSL", trusting(broker), "elsewhere.example")
    assert shake_hands(broker, "SASL_SSL", trusting(broker))


def test_certificates_change_under_load_and_no_connection_is_lost(tmp_path: Path) -> None:
    with SecuredFencepost(tmp_path, {"PLAINTEXT": "PLAINTEXT", "SASL_SSL": "SASL_SSL"}) as broker:
        options, address = own_options(broker, "SASL_SSL", "PLAIN"), broker.address_of("SASL_SSL")
        with Admin(address, **options) as admin:
            admin.create_topic(NewTopic("load", 1))
        before = shake_hands(broker, "SASL_SSL", trusting(broker))
        committed, failed, stop = [0], [], threading.Event()

        def write() -> None:
            try:
                with Client(address, **options) as client:
                    while not stop.is_set():
                        with client.transaction("load") as transaction:
                            transaction.send("load", b"x")
                        committed[0] += 1
            except Exception as error:
                failed.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            _wait(lambda: committed[0] > 5 or failed)
            # Half a file changes nothing.
            whole = broker.certificate.read_bytes()
            broker.certificate.write_bytes(whole[:100])
            broker.wait_for_log("KeysNotReloaded")
            assert shake_hands(broker, "SASL_SSL", trusting(broker)) == before
            broker.authority.sign("broker.pem")
            broker.wait_for_log("KeysReloaded")
            assert shake_hands(broker, "SASL_SSL", trusting(broker)) != before
            goal = committed[0] + 5
            _wait(lambda: committed[0] >= goal or failed)
        finally:
            stop.set()
            writer.join()
        assert failed == []


def _wait(holds) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_frame_that_is_too_large_before_authentication_ends_the_connection(broker: SecuredFencepost) -> None:
    with RawClient(("127.0.0.1", broker.ports["SASL_PLAINTEXT"])) as client:
        client.send_bytes((524_289).to_bytes(4, "big"))
        assert client.is_closed(SECONDS)


def test_key_stores_of_java_are_refused_with_a_way_out(tmp_path: Path) -> None:
    settings = {"ssl.keystore.type": "JKS", "ssl.keystore.location": str(tmp_path / "server.jks")}
    with pytest.raises(CannotStart, match="only PEM is read; convert it"):
        Broker(listen="SSL://127.0.0.1:0", settings=settings, data=tmp_path / "data").start()


def test_a_slip_of_the_pen_never_opens_a_door() -> None:
    assert protocol_of("EXTERNAL", {}) == "PLAINTEXT"
    with pytest.raises(InvalidSetting, match="No security protocol defined"):
        protocol_of("SASL_SLL", {"sasl.enabled.mechanisms": "PLAIN"})
    with pytest.raises(InvalidSetting, match="did you mean"):
        broker_config({"listener.name.external.ssl.keystore.locatoin": "x"})
