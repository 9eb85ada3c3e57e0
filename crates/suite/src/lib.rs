//! Cipher suites behind one trait: seal and open in place.
