import json
import sys

# Triple-DES, SHA-1
NONE_OF_IT = (1, 3), (2, 2), (3, 2), (4, X25519)


def check_set_up(new):
    """IKE_SA_INIT and IKE_AUTH with a pre-shared key: choice, AUTH and selectors; an echo crosses"""
    ike = new()
    child = ike.up()
    child.echo(ike)
    ike.close()


def check_liveness(new):
    """a liveness check is answered; sent again, with the same bytes"""
    ike = new()
    ike.up()
    ike.is_alive()
    request = ike.sealed(INFORMATIONAL, None)
    answers = []
    for _ in range(3):
        ike.wire.send(request, 4500)
        answers.append(ike.answer_to(request, 4500))
    ensure(len(set(answers)) == 1, "a request that was sent again has another answer")
    ike.next_id += 1
    ike.close()


def check_init_again(new):
    """IKE_SA_INIT sent again has the same answer, and makes no second IKE SA"""
    ike = new()
    ike.init()
    for _ in range(3):
        ike.wire.send(ike.request, 500)
        ensure(ike.answer_to(ike.request, 500) == ike.response, "another answer")
    ike.finish(ike.ask(AUTH, ike.auth_payloads()))
    ike.close()


def check_child_rekey(new):
    """CHILD SA rekeyed with X25519, the old one deleted; echoes cross on the new one"""
    ike = new()
    old = ike.up()
    old.echo(ike)
    child = ike.replacement(*ike.rekey_child(old))
    child.echo(ike, old)
    ike.delete_child(old)
    child.echo(ike)
    ike.close()


def check_ike_rekey(new):
    """IKE SA rekeyed, the old one deleted; the CHILD SA stays and is rekeyed with keys of the new one"""
    old = new()
    child = old.up()
    ike = old.rekey()
    old.close()
    ike.is_alive()
    child.echo(ike)
    next_child = ike.replacement(*ike.rekey_child(child))
    ike.delete_child(child)
    next_child.echo(ike)
    ike.close()


def check_delete(new):
    """CHILD SA deleted: its other half is in the answer; then the IKE SA, which makes no CHILD SA any more"""
    ike = new()
    child = ike.up()
    ike.delete_child(child)
    ike.is_alive()
    ike.close()
    is_ignored(new, ike.create_child(), 4500)


def check_fragments(new):
    """IKE_AUTH in three fragments (RFC 7383), in another order"""
    ike = new()
    ike.init()
    inner = ike.auth_payloads()
    octets, first = bytes(inner), first_of(inner)
    third = len(octets) // 3 + 1
    pieces = [octets[at:at + third] for at in range(0, len(octets), third)]
    sent = [ike.fragment(AUTH, first if at == 0 else 0, at + 1, 3, piece) for at, piece in enumerate(pieces)]
    for at in (2, 0, 1):
        ike.wire.send(sent[at], 4500)
    ike.next_id += 1
    child = ike.finish(ike.opened(ike.answer_to(sent[0], 4500)))
    child.echo(ike)
    ike.close()


def check_invalid_ke(new):
    """a key exchange that it does not have: INVALID_KE_PAYLOAD names the one to use"""
    ike = new()
    offered = offer(IKE_ID, b"", (1, 20, 256), (2, 6), (4, 14), (4, X25519))
    request = ike.init_request(offered, IKEv2_KE(group=14, ke=os.urandom(256)) / IKEv2_Nonce(nonce=ike.exchange.nonce))
    ike.wire.send(request, 500)
    answer = IKEv2(ike.answer_to(request, 500))
    [said] = notifies(answer, INVALID_KE) or [None]
    ensure(said and said.notify == struct.pack("!H", X25519), f"it says {answer.summary()}")
    ike.up()
    ike.close()


def check_no_proposal(new):
    """no proposal that it has: NO_PROPOSAL_CHOSEN"""
    ike = new()
    request = ike.init_request(offer(IKE_ID, b"", *NONE_OF_IT))
    ike.wire.send(request, 500)
    ensure(notifies(IKEv2(ike.answer_to(request, 500)), NO_PROPOSAL), "it is not refused")


def check_selectors(new):
    """selectors that policy does not have: TS_UNACCEPTABLE, and the IKE SA stays"""
    ike = new()
    ike.init()
    answer = ike.ask(AUTH, ike.auth_payloads(theirs=host("10.66.6.6")))
    ensure(IKEv2_AUTH in answer and IKEv2_SA not in answer, "a CHILD SA of other selectors")
    ensure(notifies(answer, TS_UNACCEPTABLE), f"it says {answer.summary()}")
    ike.is_alive()
    ike.close()


def check_cookies(new):
    """many half-open IKE SAs: a cookie is asked for, with it there is an answer; another SPI's is refused"""
    wire, last = new().wire, None
    for _ in range(2000):
        ike = new()
        request = ike.init_request()
        wire.send(request, 500)
        answer = IKEv2(ike.answer_to(request, 500))
        cookies = notifies(answer, COOKIE)
        if cookies and last is None:
            last = ike, cookies[0].notify
        elif cookies:
            break
    ensure(last, "no cookie in 2000 attempts")
    ike, cookie = last
    ensure(1 <= len(cookie) <= 64, "a cookie's length")
    thief = new()
    request = thief.init_request(before=notify(COOKIE, cookie))
    wire.send(request, 500)
    answer = IKEv2(thief.answer_to(request, 500))
    ensure(IKEv2_SA not in answer and notifies(answer, COOKIE), "a cookie for another SPI is accepted")
    ike.init(cookie)
    ike.finish(ike.ask(AUTH, ike.auth_payloads()))
    ike.close()


def others(new, port):
    """The answers until that to a request which makes no IKE SA, as it proposes nothing acceptable."""
    probe, found = new(), []
    probe.wire.send(probe.init_request(offer(IKE_ID, b"", *NONE_OF_IT)), port)
    while (answer := IKEv2(probe.wire.receive(port))).init_SPI != probe.spi_i:
        found.append(answer)
    return found


def is_ignored(new, message, port):
    """Sends a message that must not be answered."""
    new().wire.send(message, port)
    found = others(new, port)
    ensure(not found, f"it is answered with {[one.summary() for one in found]}")


def makes_nothing(new, message):
    """Sends a message that must not begin an IKE SA; an error may be said."""
    new().wire.send(message, 500)
    for answer in others(new, 500):
        ensure(IKEv2_SA not in answer and IKEv2_KE not in answer, f"it is answered with {answer.summary()}")


def hostile_secret(new):
    """another pre-shared key: AUTHENTICATION_FAILED, and the IKE SA is gone"""
    ike = new()
    ike.init()
    answer = ike.ask(AUTH, ike.auth_payloads(secret=b"another one of the same length"))
    ensure(notifies(answer, AUTHENTICATION_FAILED) and IKEv2_AUTH not in answer, f"it says {answer.summary()}")
    is_ignored(new, ike.create_child(), 4500)


def hostile_lengths(new):
    """nonces of 15 and 257 bytes, KEi of 0, 31 and 33 bytes, and one that gives an all-zero secret"""
    good = Exchange()
    public = good.private.public_key().public_bytes_raw()
    for public, nonce in ((public, 15), (public, 257), (b"", 32), (public[:31], 32), (public + b"\0", 32),
                          (bytes(32), 32)):
        makes_nothing(new, new().init_request(
            exchange=IKEv2_KE(group=X25519, ke=public) / IKEv2_Nonce(nonce=os.urandom(nonce))))


def hostile_cut(new):
    """IKE_SA_INIT truncated at every length, with and without a length field that fits"""
    whole = new().init_request()
    for length in range(len(whole)):
        message = new().init_request()[:length]
        new().wire.send(message, 500)
        if length >= 28:
            new().wire.send(message[:24] + struct.pack("!I", length) + message[28:], 500)
        if length % 16 == 0:
            makes_nothing(new, message)


def hostile_critical(new):
    """an unknown critical payload: in IKE_SA_INIT it begins nothing, encrypted UNSUPPORTED_CRITICAL_PAYLOAD names it; without the flag it is skipped"""
    unknown = lambda flags: IKEv2_Payload(flags=flags, load=b"what")
    ike = new()
    for flags in (0x80, 0):
        message = bytearray(ike.init_request(more=unknown(flags)))
        # the last payload but one says what follows: 200, which has no meaning
        message[len(message) - 8 - 28] = 200
        if flags:
            makes_nothing(new, bytes(message))
        else:
            ike.wire.send(message, 500)
            ensure(IKEv2_SA in IKEv2(ike.answer_to(bytes(message), 500)), "an unknown payload is not skipped")
    ike = new()
    ike.up()
    for flags in (0x80, 0):
        # its type goes where the type of the first payload is
        head = ike.header(INFORMATIONAL)
        plain = bytes(unknown(flags)) + b"\0"
        head.next_payload, head.length = 46, 28 + 4 + 8 + len(plain) + 16
        request = ike.protect(bytes(head) + struct.pack("!BBH", 200, 0, 4 + 8 + len(plain) + 16), plain)
        ike.wire.send(request, 4500)
        ike.next_id += 1
        answer = ike.opened(ike.answer_to(request, 4500))
        if flags:
            [said] = notifies(answer, UNSUPPORTED_CRITICAL) or [None]
            ensure(said and said.notify == bytes([200]), f"it says {answer.summary()}")
        else:
            ensure(not notifies(answer, UNSUPPORTED_CRITICAL), "an unknown payload is not skipped")
    ike.close()


def hostile_bits(new):
    """every bit of a protected request flipped, and the request truncated: no answer; as it was, it is answered"""
    ike = new()
    ike.up()
    request = ike.sealed(INFORMATIONAL, None)
    for at in range(16, len(request)):
        ike.wire.send(request[:at], 4500)
        for bit in range(8):
            message = bytearray(request)
            message[at] ^= 1 << bit
            ike.wire.send(message, 4500)
        # of the header an error may be said in clear
        for answer in others(new, 4500):
            ensure(at < 28 and answer.next_payload == 41, f"it is answered with {answer.summary()}")
    ike.is_alive()
    ike.close()


def hostile_numbers(new):
    """message IDs that skip, or that were used for something else, do nothing; nor does its own answer sent back"""
    ike = new()
    child = ike.up()
    delete = IKEv2_Delete(proto=IKE_ID, SPIsize=0, SPInum=0)
    for number in (0, 1, ike.next_id + 1, ike.next_id + 1000, 0xffffffff):
        ike.wire.send(ike.sealed(INFORMATIONAL, delete, number), 4500)
    request = ike.sealed(INFORMATIONAL, None)
    ike.wire.send(request, 4500)
    while True:
        answer = ike.wire.receive(4500)
        if IKEv2(answer).id == IKEv2(request).id:
            break
    ike.next_id += 1
    ike.wire.send(answer, 4500)
    ike.is_alive()
    child.echo(ike)
    ike.close()


def hostile_deletes(new):
    """a delete of an unknown SPI, of another IKE SA's CHILD SA, or of our own half: all stay"""
    one, other = new(), new()
    child, others = one.up(), other.up()
    for spi in (bytes(4), os.urandom(4), others.ours, others.theirs, child.theirs):
        answer = one.ask(INFORMATIONAL, IKEv2_Delete(proto=ESP_ID, SPIsize=4, SPInum=1, SPI=[spi]))
        ensure(IKEv2_Delete not in answer, f"it deletes {answer.summary()}")
    for ike, its in ((one, child), (other, others)):
        ike.is_alive()
        its.echo(ike)
        ike.close()


def hostile_rekey(new):
    """a rekey of an unknown SPI: CHILD_SA_NOT_FOUND; one whose selectors widen does not widen"""
    ike = new()
    child = ike.up()
    _, answer = ike.rekey_child(child, spi=os.urandom(4))
    ensure(notifies(answer, CHILD_SA_NOT_FOUND) and IKEv2_SA not in answer, f"it says {answer.summary()}")
    everything = IPv4TrafficSelector(
        IP_protocol_ID=0, starting_address_v4="0.0.0.0", ending_address_v4="255.255.255.255")
    exchange, answer = ike.rekey_child(child, ours=everything, theirs=everything)
    new_child = ike.replacement(exchange, answer)
    for kind, address in ((IKEv2_TSi, ike.inner[0]), (IKEv2_TSr, ike.inner[1])):
        ike.is_host(answer[kind], address)
    new_child.echo(ike, child)
    ike.close()


def hostile_fragments(new):
    """fragments 0 of 0, 2 of 1, 1 of 65535, of a total that shrinks, and forged ones; sound ones still pass"""
    ike = new()
    ike.init()
    inner = ike.auth_payloads()
    octets, first = bytes(inner), first_of(inner)
    half = len(octets) // 2
    for number, total in ((0, 0), (0, 2), (2, 1), (1, 65535), (65535, 65535)):
        ike.wire.send(ike.fragment(AUTH, first, number, total, octets[:half]), 4500)
    sound = [ike.fragment(AUTH, first, 1, 2, octets[:half]), ike.fragment(AUTH, 0, 2, 2, octets[half:])]
    ike.wire.send(sound[0], 4500)
    ike.wire.send(ike.fragment(AUTH, first, 1, 1, octets[:half]), 4500)
    ike.wire.send(sound[1][:-1] + bytes([sound[1][-1] ^ 1]), 4500)
    for one in sound:
        ike.wire.send(one, 4500)
    ike.next_id += 1
    child = ike.finish(ike.opened(ike.answer_to(sound[0], 4500)))
    child.echo(ike)
    ike.close()


def hostile_order(new):
    """IKE_AUTH in clear, CREATE_CHILD_SA and INFORMATIONAL before IKE_AUTH: nothing is set up, and IKE_AUTH passes"""
    ike = new()
    ike.init()
    clear = ike.header(AUTH) / ike.auth_payloads()
    ike.wire.send(clear, 4500)
    ike.wire.send(ike.create_child(2), 4500)
    ike.wire.send(ike.sealed(INFORMATIONAL, None, 2), 4500)
    child = ike.finish(ike.ask(AUTH, ike.auth_payloads()))
    child.echo(ike)
    ike.close()


def hostile_versions(new):
    """messages of IKEv1 and of version 3: no IKE SA"""
    for version in (0x10, 0x30):
        message = bytearray(new().init_request())
        message[17] = version
        makes_nothing(new, message)


def hostile_noise(new):
    """each byte of IKE_SA_INIT after the SPIs set to 0 and to 255, and noise of many lengths; others are served"""
    wire, whole = new().wire, new().init_request()
    for at in range(16, len(whole)):
        for value in (0, 255):
            # each has an SPI of its own; where a nonce was changed it is sound, and many are half-open
            message = bytearray(os.urandom(8) + whole[8:])
            message[at] = value
            wire.send(message, 500)
        if at % 16 == 0:
            others(new, 500)
    for length in range(0, 600, 7):
        for port in (500, 4500):
            wire.send(os.urandom(length), port)
            others(new, port)
    ike = new()
    ike.up()
    ike.close()


def main():
    settings = json.loads(sys.argv[1])
    settings["secret"] = settings["secret"].encode()
    settings["names"] = [name.encode() for name in settings["names"]]
    wire = Wire(settings["local"], settings["remote"])
    known = [value for name, value in globals().items() if name.startswith(("check_", "hostile_"))]
    # that of cookies leaves many half-open IKE SAs, and the gateway asks for cookies afterwards
    known.sort(key=lambda check: (check is check_cookies, check.__name__.startswith("hostile_")))
    for check in known:
        try:
            check(lambda: Session(wire, settings))
            why = None
        except Exception as error:  # whatever it is, the check has failed
            why = f"{type(error).__name__}: {error}"
        hostile = check.__name__.startswith("hostile_")
        print(json.dumps({"what": check.__doc__, "is_hostile": hostile, "why": why}), flush=True)
        for one in wire.sockets.values():
            one.setblocking(False)
            try:
                while one.recv(65535):
                    pass
            except BlockingIOError:
                pass


main()
