//! Our IPsec and IKE against other people's. One program, so that its tests, which wait for
//! guests and daemons most of the time, run beside each other.

mod gateway;
mod guests;
mod ike;
mod kernel;
mod scapy;
