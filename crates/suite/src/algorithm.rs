//! The algorithms of suites, and their lengths.

/// Authenticated encryption with a 16-byte ICV and an 8-byte IV.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Aead {
    /// AES-GCM with a 128-bit key (RFC 4106).
    Aes128Gcm,
    /// AES-GCM with a 192-bit key (RFC 4106).
    Aes192Gcm,
    /// AES-GCM with a 256-bit key (RFC 4106).
    Aes256Gcm,
    /// ChaCha20 and Poly1305 (RFC 7634).
    ChaCha20Poly1305,
}

/// A cipher without integrity.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Cipher {
    /// No encryption (RFC 2410).
    Null,
    /// DES in CBC mode (RFC 2405).
    DesCbc,
    /// 3DES with three keys in CBC mode (RFC 2451).
    TripleDesCbc,
    /// AES in CBC mode with a 128-bit key (RFC 3602).
    Aes128Cbc,
    /// AES in CBC mode with a 192-bit key (RFC 3602).
    Aes192Cbc,
    /// AES in CBC mode with a 256-bit key (RFC 3602).
    Aes256Cbc,
}

/// An integrity algorithm: a truncated HMAC.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Mac {
    /// HMAC-MD5-96 (RFC 2403).
    HmacMd5,
    /// HMAC-SHA1-96 (RFC 2404).
    HmacSha1,
    /// HMAC-SHA-256-128 (RFC 4868).
    HmacSha256,
    /// HMAC-SHA-384-192 (RFC 4868).
    HmacSha384,
    /// HMAC-SHA-512-256 (RFC 4868).
    HmacSha512,
}

/// Bytes of salt at the end of an AEAD's key (RFC 4106 §8.1, RFC 7634 §2).
pub(crate) const SALT_LEN: usize = 4;
/// Bytes of an AEAD's IV in a packet: the part of the nonce that changes (RFC 4106 §3.1, RFC 7634
/// §2).
pub(crate) const AEAD_IV_LEN: usize = 8;
/// Bytes of an AEAD's ICV: the whole tag.
pub(crate) const AEAD_ICV_LEN: usize = 16;

impl Aead {
    /// All AEADs.
    pub const ALL: [Self; 4] =
        [Self::Aes128Gcm, Self::Aes192Gcm, Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// Returns the length of the key with its salt, in bytes.
    #[must_use]
    pub const fn key_len(self) -> usize {
        SALT_LEN
            + match self {
                Self::Aes128Gcm => 16,
                Self::Aes192Gcm => 24,
                Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
            }
    }
}

impl Cipher {
    /// All ciphers.
    pub const ALL: [Self; 6] = [
        Self::Null,
        Self::DesCbc,
        Self::TripleDesCbc,
        Self::Aes128Cbc,
        Self::Aes192Cbc,
        Self::Aes256Cbc,
    ];

    /// Returns the length of the key in bytes: 8 for each DES key, including its parity bits (RFC
    /// 2451 §2.2).
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Null => 0,
            Self::DesCbc => 8,
            Self::Aes128Cbc => 16,
            Self::TripleDesCbc | Self::Aes192Cbc => 24,
            Self::Aes256Cbc => 32,
        }
    }

    /// Returns the length of the IV in bytes: one block of the cipher.
    #[must_use]
    pub const fn iv_len(self) -> usize {
        match self {
            Self::Null => 0,
            Self::DesCbc | Self::TripleDesCbc => 8,
            Self::Aes128Cbc | Self::Aes192Cbc | Self::Aes256Cbc => 16,
        }
    }

    /// Returns the number to whose multiples the text is padded: a block, at least 4 bytes (RFC
    /// 4303 §2.4).
    #[must_use]
    pub const fn block_len(self) -> usize {
        match self {
            Self::Null => 4,
            _ => self.iv_len(),
        }
    }

    /// Checks whether the cipher may be used without `allow_insecure`. RFC 8221 §5: AES-CBC MUST be
    /// supported, DES MUST NOT and 3DES SHOULD NOT. The RFC requires NULL, but an administrator who
    /// configures encryption must know that NULL does not encrypt.
    #[must_use]
    pub const fn is_secure(self) -> bool {
        !matches!(self, Self::Null | Self::DesCbc | Self::TripleDesCbc)
    }
}

impl Mac {
    /// All integrity algorithms.
    pub const ALL: [Self; 5] =
        [Self::HmacMd5, Self::HmacSha1, Self::HmacSha256, Self::HmacSha384, Self::HmacSha512];

    /// Returns the length of the key in bytes: the hash's length (RFC 2403 §3, RFC 2404 §3, RFC
    /// 4868 §2.1.1).
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::HmacMd5 => 16,
            Self::HmacSha1 => 20,
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
        }
    }

    /// Returns the length of the ICV in bytes: the first part of the HMAC (RFC 2403 §2, RFC 2404
    /// §2, RFC 4868 §2.3).
    #[must_use]
    pub const fn icv_len(self) -> usize {
        match self {
            Self::HmacMd5 | Self::HmacSha1 => 12,
            Self::HmacSha256 => 16,
            Self::HmacSha384 => 24,
            Self::HmacSha512 => 32,
        }
    }

    /// Checks whether the algorithm may be used without `allow_insecure`. RFC 8221 §6: HMAC-MD5
    /// MUST NOT be supported, HMAC-SHA1 still MUST ("MUST-"), SHA-2 MUST or SHOULD.
    #[must_use]
    pub const fn is_secure(self) -> bool {
        !matches!(self, Self::HmacMd5)
    }
}
