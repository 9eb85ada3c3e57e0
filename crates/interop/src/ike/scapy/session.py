"""An initiator of IKEv2: scapy's layers write and read the messages, the package `cryptography` has
the primitives. Nothing here comes from our own code; section numbers are those of RFC 7296."""
import hashlib
import hmac
import os
import socket
import struct
import time

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from scapy.contrib.ikev2 import (
    IKEv2, IKEv2_AUTH, IKEv2_Delete, IKEv2_Encrypted, IKEv2_Encrypted_Fragment, IKEv2_IDi, IKEv2_IDr,
    IKEv2_KE, IKEv2_Nonce, IKEv2_Notify, IKEv2_Payload, IKEv2_Proposal, IKEv2_SA, IKEv2_TSi, IKEv2_TSr,
    IKEv2_Transform, IPv4TrafficSelector,
)
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.ipsec import ESP, SecurityAssociation

SA_INIT, AUTH, CREATE_CHILD, INFORMATIONAL = 34, 35, 36, 37
INITIATOR, RESPONSE = 0x08, 0x20
IKE_ID, ESP_ID = 1, 3
X25519 = 31
UNSUPPORTED_CRITICAL, INVALID_MAJOR, INVALID_SYNTAX, NO_PROPOSAL, INVALID_KE = 1, 5, 7, 14, 17
AUTHENTICATION_FAILED, TS_UNACCEPTABLE, CHILD_SA_NOT_FOUND = 24, 38, 44
NAT_SOURCE, NAT_DESTINATION, COOKIE, REKEY_SA, FRAGMENTATION = 16388, 16389, 16390, 16393, 16430
# Longer than anything takes, even on a busy machine.
PATIENCE = 20
NON_ESP_MARKER = bytes(4)


class Failed(Exception):
    """What was seen is not what the RFC says."""


def ensure(truth, what):
    if not truth:
        raise Failed(what)


def prf(key, data):
    return hmac.new(key, data, hashlib.sha384).digest()


def prf_plus(key, seed, length):
    """Section 2.13."""
    made, block = b"", b""
    while len(made) < length:
        block = prf(key, block + seed + bytes([len(made) // 48 + 1]))
        made += block
    return made[:length]


def cut(octets, *lengths):
    at = 0
    for length in lengths:
        yield octets[at:at + length]
        at += length


def transforms(*wanted):
    """A chain of transforms: (type, identifier) or (type, identifier, key length)."""
    chain = None
    for kind, identifier, *bits in wanted:
        more = {"length": 12, "key_length": bits[0]} if bits else {}
        one = IKEv2_Transform(transform_type=kind, transform_id=identifier, **more)
        chain = chain / one if chain else one
    return chain


def offer(protocol, spi, *wanted):
    return IKEv2_SA(prop=IKEv2_Proposal(
        proposal=1, proto=protocol, SPI=spi, trans_nb=len(wanted), trans=transforms(*wanted)))


# AES-256-GCM, PRF_HMAC_SHA2_384, X25519
IKE_SUITE = (1, 20, 256), (2, 6), (4, X25519)
# AES-256-GCM, 32-bit sequence numbers
ESP_SUITE = (1, 20, 256), (5, 0)


def chosen(payload):
    """The transforms of the only proposal of an answer."""
    ensure(payload.prop.proposal == 1 and not payload.prop.payload, "not one proposal of ours")
    found, one = [], payload.prop.trans
    while one:
        found.append((one.transform_type, one.transform_id) + ((one.key_length & 0xffff,) if one.length > 8 else ()))
        one = one.payload
    return tuple(sorted(found))


def notify(kind, data=b"", protocol=0, spi=b""):
    return IKEv2_Notify(type=kind, proto=protocol, SPI=spi, notify=data)


def notifies(message, kind):
    found, at = [], 1
    while (one := message.getlayer(IKEv2_Notify, at)) is not None:
        found += [one] if one.type == kind else []
        at += 1
    return found


def host(address):
    return IPv4TrafficSelector(IP_protocol_ID=0, starting_address_v4=address, ending_address_v4=address)


def selectors(ours, theirs):
    return (IKEv2_TSi(number_of_TSs=1, traffic_selector=[ours])
            / IKEv2_TSr(number_of_TSs=1, traffic_selector=[theirs]))


class Exchange:
    """A private X25519 value and a nonce."""

    def __init__(self):
        self.private, self.nonce = X25519PrivateKey.generate(), os.urandom(32)

    def payloads(self):
        return IKEv2_KE(group=X25519, ke=self.private.public_key().public_bytes_raw()) / IKEv2_Nonce(nonce=self.nonce)

    def secret(self, message):
        ke, nonce = message[IKEv2_KE], message[IKEv2_Nonce]
        ensure(ke.group == X25519 and len(ke.ke) == 32, "KEr does not fit its method")
        ensure(16 <= len(nonce.nonce) <= 256, "Nr has a wrong length")
        return self.private.exchange(X25519PublicKey.from_public_bytes(ke.ke)), nonce.nonce


class Wire:
    """Sockets of ports 500 and 4500, to the same of the gateway."""

    def __init__(self, local, remote):
        self.remote, self.sockets = remote, {}
        for port in (500, 4500):
            self.sockets[port] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.sockets[port].bind((local, port))

    def send(self, octets, port):
        marker = NON_ESP_MARKER if port == 4500 else b""
        self.sockets[port].sendto(marker + bytes(octets), (self.remote, port))

    def datagram(self, port):
        one = self.sockets[port]
        one.settimeout(PATIENCE)
        try:
            return one.recv(65535)
        except TimeoutError:
            raise Failed("no answer") from None

    def receive(self, port):
        """The next message of IKE."""
        while True:
            octets = self.datagram(port)
            if port == 500:
                return octets
            if octets[:4] == NON_ESP_MARKER:
                return octets[4:]

    def esp(self):
        """The next packet of ESP."""
        while True:
            octets = self.datagram(4500)
            if len(octets) > 1 and octets[:4] != NON_ESP_MARKER:
                return octets


class Child:
    """A CHILD SA: keys of section 2.17, of which scapy's SecurityAssociation makes ESP."""

    def __init__(self, ike, spi, answer, nonces, shared=b""):
        ensure(answer[IKEv2_SA].prop.proto == ESP_ID, "not a proposal for ESP")
        self.ours, self.theirs = spi, answer[IKEv2_SA].prop.SPI
        ensure(len(self.theirs) == 4 and int.from_bytes(self.theirs) > 255, "their SPI is none")
        out, back = cut(prf_plus(ike.sk_d, shared + nonces, 72), 36, 36)
        nat = UDP(sport=4500, dport=4500)
        self.out, self.back = (
            SecurityAssociation(ESP, spi=int.from_bytes(number), crypt_algo="AES-GCM", crypt_key=key,
                                tunnel_header=IP(src=source, dst=destination), nat_t_header=nat)
            for number, key, source, destination in (
                (self.theirs, out, ike.local, ike.remote), (self.ours, back, ike.remote, ike.local)))

    def echo(self, ike, former=None):
        """Sends an echo request to the host behind the gateway and opens its reply. After a rekey it may
        still come on the former CHILD SA, until that is deleted."""
        mark = os.urandom(4)
        inner = ike.inner
        request = IP(src=inner[0], dst=inner[1]) / ICMP(id=7, seq=1) / mark
        ike.wire.sockets[4500].sendto(bytes(self.out.encrypt(request)[UDP].payload), (ike.remote, 4500))
        while True:
            sealed = ike.wire.esp()
            way = [one for one in (self, former) if one and sealed[:4] == one.ours]
            if way:
                break
        opened = way[0].back.decrypt(IP(bytes(
            IP(src=ike.remote, dst=ike.local) / UDP(sport=4500, dport=4500) / sealed)))
        ensure(opened[ICMP].type == 0 and bytes(opened[ICMP].payload) == mark, "not our echo")
        ensure((opened.src, opened.dst) == (inner[1], inner[0]), "the echo has other addresses")


class Session:
    """An IKE SA that we initiate."""

    def __init__(self, wire, settings):
        self.wire, self.settings = wire, settings
        self.local, self.remote = settings["local"], settings["remote"]
        self.inner = settings["inner"]
        self.spi_i, self.spi_r, self.next_id, self.port = os.urandom(8), bytes(8), 0, 500
        self.exchange = Exchange()

    def init_request(self, offered=None, exchange=None, more=None, before=None):
        source, destination = (
            hashlib.sha1(self.spi_i + bytes(8) + socket.inet_aton(one) + struct.pack("!H", 500)).digest()
            for one in (self.local, self.remote))
        message = IKEv2(init_SPI=self.spi_i, exch_type=SA_INIT, flags=INITIATOR)
        if before is not None:
            message = message / before
        message = (message / (offered or offer(IKE_ID, b"", *IKE_SUITE)) / (exchange or self.exchange.payloads())
                   / notify(NAT_SOURCE, source) / notify(NAT_DESTINATION, destination))
        return bytes(message / more if more is not None else message)

    def init(self, cookie=None):
        """IKE_SA_INIT, with a cookie where one is asked for, and the keys of section 2.14."""
        before = notify(COOKIE, cookie) if cookie else None
        self.request = self.init_request(more=notify(FRAGMENTATION), before=before)
        self.wire.send(self.request, 500)
        self.response = self.answer_to(self.request, 500)
        asked = notifies(IKEv2(self.response), COOKIE)
        if asked and not cookie:
            return self.init(asked[0].notify)
        answer = IKEv2(self.response)
        ensure(IKEv2_SA in answer, f"refused: {answer.summary()}")
        ensure(chosen(answer[IKEv2_SA]) == tuple(sorted(IKE_SUITE)), "another choice than ours")
        self.spi_r = answer.resp_SPI
        ensure(any(self.spi_r), "no SPI")
        ensure(notifies(answer, NAT_SOURCE) and notifies(answer, NAT_DESTINATION), "no NAT detection")
        shared, self.nonce_r = self.exchange.secret(answer)
        self.nonce_i = self.exchange.nonce
        self.derive(prf(self.nonce_i + self.nonce_r, shared))
        self.port, self.next_id = 4500, 1

    def derive(self, seed):
        material = prf_plus(seed, self.nonce_i + self.nonce_r + self.spi_i + self.spi_r, 3 * 48 + 2 * 36)
        self.sk_d, self.sk_ei, self.sk_er, self.sk_pi, self.sk_pr = cut(material, 48, 36, 36, 48, 48)

    def answer_to(self, request, port):
        """The next message, which must answer this one."""
        answer, request = self.wire.receive(port), IKEv2(request)
        head = IKEv2(answer)
        ensure(head.init_SPI == request.init_SPI, f"an answer to another message: {head.summary()}")
        ensure((head.exch_type, head.id) == (request.exch_type, request.id), f"it answers with {head.summary()}")
        ensure(int(head.flags) == RESPONSE, f"an answer has the flags {head.flags}")
        ensure(head.length == len(answer), "the length is not that of the datagram")
        return answer

    def header(self, kind, number=None):
        number = self.next_id if number is None else number
        return IKEv2(init_SPI=self.spi_i, resp_SPI=self.spi_r, exch_type=kind, flags=INITIATOR, id=number)

    def sealed(self, kind, inner, number=None):
        """A request with these payloads in an SK payload (RFC 5282)."""
        first, plain = (0, b"") if inner is None else (first_of(inner), bytes(inner))
        plain += b"\0"  # no padding
        head = self.header(kind, number)
        head.next_payload, head.length = 46, 28 + 4 + 8 + len(plain) + 16
        payload = struct.pack("!BBH", first, 0, 4 + 8 + len(plain) + 16)
        return self.protect(bytes(head) + payload, plain)

    def protect(self, clear, plain):
        vector = os.urandom(8)
        return clear + vector + AESGCM(self.sk_ei[:32]).encrypt(self.sk_ei[32:] + vector, plain, clear)

    def fragment(self, kind, first, number, total, piece, message_id=None):
        """A fragment (RFC 7383)."""
        plain = piece + b"\0"
        head = self.header(kind, message_id)
        head.next_payload, head.length = 53, 28 + 8 + 8 + len(plain) + 16
        payload = struct.pack("!BBHHH", first, 0, 8 + 8 + len(plain) + 16, number, total)
        return self.protect(bytes(head) + payload, plain)

    def opened(self, octets):
        """The payloads in the SK payload of a response."""
        head = IKEv2(octets)
        ensure(head.next_payload == 46 and IKEv2_Encrypted in head, f"not encrypted: {head.summary()}")
        ensure(head.resp_SPI == self.spi_r, "of another IKE SA")
        body, clear = octets[32:], octets[:32]
        plain = AESGCM(self.sk_er[:32]).decrypt(self.sk_er[32:] + body[:8], body[8:], clear)
        plain = plain[:len(plain) - 1 - plain[-1]]
        head.remove_payload()
        head.next_payload, head.length = octets[28], 28 + len(plain)
        return IKEv2(bytes(head) + plain)

    def ask(self, kind, inner, number=None):
        """Sends a request and returns the payloads of its answer."""
        request = self.sealed(kind, inner, number)
        self.wire.send(request, self.port)
        if number is None:
            self.next_id += 1
        return self.opened(self.answer_to(request, self.port))

    def auth_payloads(self, secret=None, theirs=None, spi=None):
        self.child_spi = spi or os.urandom(4)
        identity = IKEv2_IDi(IDtype=2, ID=self.settings["names"][1])
        # section 2.15: IDi without its generic header
        signed = self.request + self.nonce_r + prf(self.sk_pi, bytes(identity)[4:])
        proof = prf(prf(secret or self.settings["secret"], b"Key Pad for IKEv2"), signed)
        return (identity / IKEv2_AUTH(auth_type=2, load=proof) / offer(ESP_ID, self.child_spi, *ESP_SUITE)
                / selectors(host(self.inner[0]), theirs or host(self.inner[1])))

    def finish(self, answer):
        """Checks the answer to IKE_AUTH, and returns its CHILD SA."""
        ensure(IKEv2_AUTH in answer, f"refused: {answer.summary()}")
        identity, proof = answer[IKEv2_IDr], answer[IKEv2_AUTH]
        ensure((identity.IDtype, identity.ID) == (2, self.settings["names"][0]), "another identity")
        body = bytes(identity)[4:identity.length]
        signed = self.response + self.nonce_i + prf(self.sk_pr, body)
        expected = prf(prf(self.settings["secret"], b"Key Pad for IKEv2"), signed)
        ensure((proof.auth_type, proof.load) == (2, expected), "AUTH is not that of the pre-shared key")
        ensure(chosen(answer[IKEv2_SA]) == tuple(sorted(ESP_SUITE)), "another choice than ours for ESP")
        for kind, address in ((IKEv2_TSi, self.inner[0]), (IKEv2_TSr, self.inner[1])):
            self.is_host(answer[kind], address)
        return Child(self, self.child_spi, answer, self.nonce_i + self.nonce_r)

    @staticmethod
    def is_host(payload, address):
        [one] = payload.traffic_selector
        found = one.starting_address_v4, one.ending_address_v4
        ensure(found == (address, address), f"traffic selectors of {found}")

    def up(self):
        """Sets up an IKE SA with a CHILD SA, and returns that."""
        self.init()
        return self.finish(self.ask(AUTH, self.auth_payloads()))

    def is_alive(self):
        """A liveness check: an empty request has an empty answer."""
        answer = self.ask(INFORMATIONAL, None)
        ensure(not answer.next_payload, f"an answer to a liveness check has {answer.summary()}")

    def rekey_child(self, child, spi=None, ours=None, theirs=None):
        """Asks for a CHILD SA in place of another one."""
        exchange, self.child_spi = Exchange(), os.urandom(4)
        answer = self.ask(CREATE_CHILD, notify(REKEY_SA, protocol=ESP_ID, spi=spi or child.ours)
                          / offer(ESP_ID, self.child_spi, *ESP_SUITE, (4, X25519)) / IKEv2_Nonce(nonce=exchange.nonce)
                          / IKEv2_KE(group=X25519, ke=exchange.private.public_key().public_bytes_raw())
                          / selectors(ours or host(self.inner[0]), theirs or host(self.inner[1])))
        return exchange, answer

    def create_child(self, number=None):
        """A request for another CHILD SA."""
        return self.sealed(CREATE_CHILD, offer(ESP_ID, os.urandom(4), *ESP_SUITE) / IKEv2_Nonce(nonce=os.urandom(32))
                           / selectors(host(self.inner[0]), host(self.inner[1])), number)

    def replacement(self, exchange, answer):
        ensure(IKEv2_SA in answer, f"refused: {answer.summary()}")
        shared, nonce = exchange.secret(answer)
        return Child(self, self.child_spi, answer, exchange.nonce + nonce, shared)

    def rekey(self):
        """Returns the IKE SA in place of this one (section 2.18)."""
        new = Session(self.wire, self.settings)
        exchange = new.exchange
        answer = self.ask(CREATE_CHILD, offer(IKE_ID, new.spi_i, *IKE_SUITE) / exchange.payloads())
        ensure(IKEv2_SA in answer and answer[IKEv2_SA].prop.proto == IKE_ID, f"refused: {answer.summary()}")
        ensure(chosen(answer[IKEv2_SA]) == tuple(sorted(IKE_SUITE)), "another choice than ours")
        new.spi_r = answer[IKEv2_SA].prop.SPI
        ensure(len(new.spi_r) == 8 and new.spi_r != self.spi_r, "no new SPI")
        shared, new.nonce_r = exchange.secret(answer)
        new.nonce_i, new.port = exchange.nonce, 4500
        new.derive(prf(self.sk_d, shared + new.nonce_i + new.nonce_r))
        return new

    def delete_child(self, child):
        answer = self.ask(INFORMATIONAL, IKEv2_Delete(proto=ESP_ID, SPIsize=4, SPInum=1, SPI=[child.ours]))
        ensure(IKEv2_Delete in answer, f"its half is not deleted: {answer.summary()}")
        deleted = answer[IKEv2_Delete]
        ensure((deleted.proto, deleted.SPI) == (ESP_ID, [child.theirs]), "it deletes something else")

    def close(self):
        answer = self.ask(INFORMATIONAL, IKEv2_Delete(proto=IKE_ID, SPIsize=0, SPInum=0))
        ensure(not answer.next_payload, f"an answer to a delete has {answer.summary()}")


def first_of(payloads):
    """The number of a chain's first payload."""
    return IKEv2(bytes(IKEv2() / payloads)).next_payload
