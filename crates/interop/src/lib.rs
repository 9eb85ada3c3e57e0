//! Our IPsec against other people's.
