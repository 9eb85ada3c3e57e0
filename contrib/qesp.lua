-- Dissects Q-ESP (docs/qesp.md) in Wireshark and tshark: ESP with ports and protocol
-- of the flow in clear ahead of the SPI.
--
-- Copy it to the folder of personal Lua plugins (Help, About Wireshark, Folders), or
-- start `tshark -X lua_script:qesp.lua`. The IP protocol number is a preference of
-- the protocol (default 253). What follows the clear part is given to Wireshark's own
-- ESP dissector, which decrypts it with the keys that
-- `headroom tunnel wireshark FILE` prints. It does not verify: the check value of
-- Q-ESP covers more than ESP's.

local qesp = Proto("qesp", "Q-ESP")

local transports = {
  [1] = "ICMP", [6] = "TCP", [17] = "UDP", [33] = "DCCP", [47] = "GRE", [50] = "ESP",
  [51] = "AH", [58] = "ICMPv6", [59] = "No next header", [132] = "SCTP", [136] = "UDP-Lite",
}

local fields = {
  source_port = ProtoField.uint16("qesp.srcport", "Source port", base.DEC),
  destination_port = ProtoField.uint16("qesp.dstport", "Destination port", base.DEC),
  protocol = ProtoField.uint8("qesp.proto", "Transport protocol (TLP)", base.DEC, transports),
  reserved = ProtoField.uint24("qesp.reserved", "Reserved", base.HEX),
  spi = ProtoField.uint32("qesp.spi", "Security parameters index", base.HEX),
  sequence = ProtoField.uint32("qesp.sequence", "Sequence number (low 32 bits)", base.DEC),
  protected = ProtoField.bytes("qesp.protected", "Protected data and check value"),
}
qesp.fields = fields

local reserved_not_zero = ProtoExpert.new("qesp.reserved.not_zero",
  "Reserved bytes are not zero: a receiver drops the packet", expert.group.PROTOCOL, expert.severity.WARN)
local truncated = ProtoExpert.new("qesp.truncated",
  "Shorter than the header of 16 bytes", expert.group.MALFORMED, expert.severity.ERROR)
qesp.experts = { reserved_not_zero, truncated }

qesp.prefs.number = Pref.uint("IP protocol number", 253, "253 or 254 (RFC 3692), or another that both ends use")

local CLEAR_LEN, HEADER_LEN = 8, 16
local esp = Dissector.get("esp")

function qesp.dissector(buffer, pinfo, tree)
  pinfo.cols.protocol = "Q-ESP"
  local subtree = tree:add(qesp, buffer(0, math.min(HEADER_LEN, buffer:len())))
  if buffer:len() < HEADER_LEN then
    subtree:add_proto_expert_info(truncated)
    return buffer:len()
  end
  local source, destination = buffer(0, 2), buffer(2, 2)
  local protocol, reserved = buffer(4, 1), buffer(5, 3)
  local spi, sequence = buffer(8, 4), buffer(12, 4)
  subtree:add(fields.source_port, source)
  subtree:add(fields.destination_port, destination)
  subtree:add(fields.protocol, protocol)
  local item = subtree:add(fields.reserved, reserved)
  if reserved:uint() ~= 0 then item:add_proto_expert_info(reserved_not_zero) end
  subtree:add(fields.spi, spi)
  subtree:add(fields.sequence, sequence)
  if buffer:len() > HEADER_LEN then subtree:add(fields.protected, buffer(HEADER_LEN)) end

  local name = transports[protocol:uint()] or ("protocol " .. protocol:uint())
  local info = string.format("%s %d → %d, SPI 0x%08x, number %d", name, source:uint(),
    destination:uint(), spi:uint(), sequence:uint())
  subtree:append_text(", " .. info)
  pinfo.cols.info = info
  esp:call(buffer(CLEAR_LEN):tvb(), pinfo, tree)
  -- the ESP dissector names the columns as if nothing else were there
  if tostring(pinfo.cols.protocol) == "ESP" then
    pinfo.cols.protocol = "Q-ESP"
    pinfo.cols.info = info
  end
  return buffer:len()
end

local table = DissectorTable.get("ip.proto")
local registered = qesp.prefs.number
table:add(registered, qesp)

function qesp.prefs_changed()
  if registered ~= qesp.prefs.number then
    table:remove(registered, qesp)
    registered = qesp.prefs.number
    table:add(registered, qesp)
  end
end
