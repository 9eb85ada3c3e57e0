//! ESP, AH and Q-ESP (RFC 4303, RFC 4302, docs/qesp.md), security associations and policies (RFC 4301). No I/O, no clock.
