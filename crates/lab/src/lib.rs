//! Measures what securing a transfer costs.
