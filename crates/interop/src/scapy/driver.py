"""Seals and opens packets by scapy's SecurityAssociation: a request is a line of
JSON on standard input, its answer a line on standard output.

  {"do": "seal" | "open", "packet": HEX, "sequence": N, "associations": [
     {"protocol": "ESP" | "AH", "spi": N, "crypt": NAME, "crypt_key": HEX,
      "auth": NAME, "auth_key": HEX, "extended": BOOL,
      "tunnel": [SOURCE, DESTINATION] | null, "udp": [PORT, PORT] | null}]}
  {"packet": HEX} | {"error": TEXT}

Associations stand from the inside to the outside.
"""
import json
import sys

import cryptography
import scapy
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import AH, ESP, SecurityAssociation
from scapy.packet import bind_layers, split_layers

made = {}


def parse(octets):
    return (IP if octets[0] >> 4 == 4 else IPv6)(octets)


def association(spec):
    name = json.dumps(spec, sort_keys=True)
    if name not in made:
        tunnel = udp = None
        if spec["tunnel"]:
            source, destination = spec["tunnel"]
            header = IPv6 if ":" in source else IP
            tunnel = header(src=source, dst=destination)
        if spec["udp"]:
            udp = UDP(sport=spec["udp"][0], dport=spec["udp"][1])
        if len(made) > 100:
            made.clear()
        made[name] = SecurityAssociation(
            {"ESP": ESP, "AH": AH}[spec["protocol"]],
            spi=spec["spi"],
            crypt_algo=spec["crypt"],
            crypt_key=bytes.fromhex(spec["crypt_key"]),
            auth_algo=spec["auth"],
            auth_key=bytes.fromhex(spec["auth_key"]),
            tunnel_header=tunnel,
            nat_t_header=udp,
            esn_en=spec["extended"],
        )
    return made[name]


def seal(sa, packet, low, high):
    if sa.proto is ESP:
        return sa.encrypt(parse(packet), seq_num=low, esn=high)
    # AuthAlgo.sign looks for ESP first, and where AH is over ESP signs that: it
    # must not see it
    split_layers(IP, ESP, proto=50)
    split_layers(IPv6, ESP, nh=50)
    try:
        return sa.encrypt(parse(packet), seq_num=low, esn=high)
    finally:
        bind_layers(IP, ESP, proto=50)
        bind_layers(IPv6, ESP, nh=50)


def answer(request):
    packet = bytes.fromhex(request["packet"])
    high, low = divmod(request["sequence"], 1 << 32)
    chain = [association(spec) for spec in request["associations"]]
    if request["do"] == "open":
        for sa in reversed(chain):
            packet = bytes(sa.decrypt(parse(packet), esn=high))
    else:
        for sa in chain:
            packet = bytes(seal(sa, packet, low, high))
    return packet.hex()


print(json.dumps({"scapy": scapy.__version__, "cryptography": cryptography.__version__}), flush=True)
for line in sys.stdin:
    try:
        print(json.dumps({"packet": answer(json.loads(line))}), flush=True)
    except Exception as error:  # whatever it is, it is the answer
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
