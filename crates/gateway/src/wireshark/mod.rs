//! Wireshark's tables of keys, with which it decrypts ESP and IKE.

mod esp_table;
mod ike_table;
mod key_tables;

pub use esp_table::esp_keys;
pub(crate) use esp_table::esp_line;
pub(crate) use ike_table::ike_line;
pub(crate) use key_tables::IkeEntry;
pub use key_tables::{KeyTableError, KeyTables};

/// The table of the keys of IKE SAs.
pub(crate) const IKE_TABLE: &str = "ikev2_decryption_table";
/// The table of the keys of ESP.
pub(crate) const ESP_TABLE: &str = "esp_sa";
