//! The numbers that IANA keeps for IKEv2 ("Internet Key Exchange Version 2 (IKEv2) Parameters"),
//! with the names of the registry.

/// Declares an enum of registered numbers. A number that is not listed is kept in `Unknown`.
macro_rules! registry {
    ($(#[$doc:meta])* $name:ident: $int:ty { $($variant:ident = $value:literal $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum $name {
            $(#[doc = $text] $variant,)*
            /// A number without a name here.
            Unknown($int),
        }

        impl From<$int> for $name {
            fn from(number: $int) -> Self {
                match number {
                    $($value => Self::$variant,)*
                    other => Self::Unknown(other),
                }
            }
        }

        impl From<$name> for $int {
            fn from(name: $name) -> Self {
                match name {
                    $($name::$variant => $value,)*
                    $name::Unknown(number) => number,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$variant => f.pad($text),)*
                    Self::Unknown(number) => f.pad(&number.to_string()),
                }
            }
        }
    };
}

registry! {
    /// What an exchange is for (RFC 7296 §3.1).
    ExchangeType: u8 {
        IkeSaInit = 34 "IKE_SA_INIT",
        IkeAuth = 35 "IKE_AUTH",
        CreateChildSa = 36 "CREATE_CHILD_SA",
        Informational = 37 "INFORMATIONAL",
        IkeIntermediate = 43 "IKE_INTERMEDIATE",
        IkeFollowupKe = 44 "IKE_FOLLOWUP_KE",
    }
}

registry! {
    /// The type of a payload (RFC 7296 §3.2, RFC 7383 §2.5).
    PayloadType: u8 {
        None = 0 "none",
        SecurityAssociation = 33 "SA",
        KeyExchange = 34 "KE",
        IdInitiator = 35 "IDi",
        IdResponder = 36 "IDr",
        Certificate = 37 "CERT",
        CertificateRequest = 38 "CERTREQ",
        Authentication = 39 "AUTH",
        Nonce = 40 "Nonce",
        Notify = 41 "N",
        Delete = 42 "D",
        VendorId = 43 "V",
        TsInitiator = 44 "TSi",
        TsResponder = 45 "TSr",
        Encrypted = 46 "SK",
        Configuration = 47 "CP",
        Eap = 48 "EAP",
        EncryptedFragment = 53 "SKF",
    }
}

registry! {
    /// The protocol of a proposal, a notification or a deletion (RFC 7296 §3.3.1).
    ProtocolId: u8 {
        None = 0 "none",
        Ike = 1 "IKE",
        Ah = 2 "AH",
        Esp = 3 "ESP",
    }
}

registry! {
    /// What a transform is for (RFC 7296 §3.3.2, RFC 9370 §2.2.1).
    TransformType: u8 {
        Encryption = 1 "ENCR",
        PseudorandomFunction = 2 "PRF",
        Integrity = 3 "INTEG",
        KeyExchange = 4 "KE",
        SequenceNumbers = 5 "SN",
        AdditionalKeyExchange1 = 6 "ADDKE1",
        AdditionalKeyExchange2 = 7 "ADDKE2",
        AdditionalKeyExchange3 = 8 "ADDKE3",
        AdditionalKeyExchange4 = 9 "ADDKE4",
        AdditionalKeyExchange5 = 10 "ADDKE5",
        AdditionalKeyExchange6 = 11 "ADDKE6",
        AdditionalKeyExchange7 = 12 "ADDKE7",
    }
}

registry! {
    /// Encryption algorithms (transform type 1).
    EncryptionId: u16 {
        TripleDes = 3 "ENCR_3DES",
        Null = 11 "ENCR_NULL",
        AesCbc = 12 "ENCR_AES_CBC",
        AesCtr = 13 "ENCR_AES_CTR",
        AesGcm8 = 18 "ENCR_AES_GCM_8",
        AesGcm12 = 19 "ENCR_AES_GCM_12",
        AesGcm16 = 20 "ENCR_AES_GCM_16",
        ChaCha20Poly1305 = 28 "ENCR_CHACHA20_POLY1305",
    }
}

registry! {
    /// Pseudorandom functions (transform type 2).
    PrfId: u16 {
        HmacMd5 = 1 "PRF_HMAC_MD5",
        HmacSha1 = 2 "PRF_HMAC_SHA1",
        Aes128Xcbc = 4 "PRF_AES128_XCBC",
        HmacSha256 = 5 "PRF_HMAC_SHA2_256",
        HmacSha384 = 6 "PRF_HMAC_SHA2_384",
        HmacSha512 = 7 "PRF_HMAC_SHA2_512",
    }
}

registry! {
    /// Integrity algorithms (transform type 3).
    IntegrityId: u16 {
        None = 0 "NONE",
        HmacMd5 = 1 "AUTH_HMAC_MD5_96",
        HmacSha1 = 2 "AUTH_HMAC_SHA1_96",
        HmacSha256 = 12 "AUTH_HMAC_SHA2_256_128",
        HmacSha384 = 13 "AUTH_HMAC_SHA2_384_192",
        HmacSha512 = 14 "AUTH_HMAC_SHA2_512_256",
    }
}

registry! {
    /// Key exchange methods (transform types 4 and 6 to 12).
    KeyExchangeMethod: u16 {
        None = 0 "NONE",
        Modp1024 = 2 "1024-bit MODP",
        Modp2048 = 14 "2048-bit MODP",
        Modp3072 = 15 "3072-bit MODP",
        Modp4096 = 16 "4096-bit MODP",
        Ecp256 = 19 "256-bit ECP",
        Ecp384 = 20 "384-bit ECP",
        Ecp521 = 21 "521-bit ECP",
        Curve25519 = 31 "Curve25519",
        Curve448 = 32 "Curve448",
        MlKem512 = 35 "ML-KEM-512",
        MlKem768 = 36 "ML-KEM-768",
        MlKem1024 = 37 "ML-KEM-1024",
    }
}

registry! {
    /// Sequence numbers of ESP and AH (transform type 5, RFC 7296 §3.3.2).
    SequenceNumbersId: u16 {
        Sequential32 = 0 "32-bit",
        Sequential64 = 1 "64-bit (ESN)",
    }
}

registry! {
    /// How a peer names itself (RFC 7296 §3.5).
    IdType: u8 {
        Ipv4 = 1 "ID_IPV4_ADDR",
        Fqdn = 2 "ID_FQDN",
        Email = 3 "ID_RFC822_ADDR",
        Ipv6 = 5 "ID_IPV6_ADDR",
        Dn = 9 "ID_DER_ASN1_DN",
        Gn = 10 "ID_DER_ASN1_GN",
        KeyId = 11 "ID_KEY_ID",
    }
}

registry! {
    /// What a CERT or CERTREQ payload contains (RFC 7296 §3.6).
    CertificateEncoding: u8 {
        Pkcs7 = 1 "PKCS #7 wrapped X.509 certificate",
        X509Signature = 4 "X.509 certificate - signature",
        Crl = 7 "certificate revocation list",
        HashAndUrl = 12 "hash and URL of X.509 certificate",
        HashAndUrlBundle = 13 "hash and URL of X.509 bundle",
        RawPublicKey = 15 "raw public key",
    }
}

registry! {
    /// How a peer proves its identity (RFC 7296 §3.8, RFC 7427 §3).
    AuthMethod: u8 {
        RsaSignature = 1 "RSA Digital Signature",
        SharedKey = 2 "Shared Key Message Integrity Code",
        DssSignature = 3 "DSS Digital Signature",
        EcdsaP256 = 9 "ECDSA with SHA-256 on the P-256 curve",
        EcdsaP384 = 10 "ECDSA with SHA-384 on the P-384 curve",
        EcdsaP521 = 11 "ECDSA with SHA-512 on the P-521 curve",
        Null = 13 "NULL Authentication",
        DigitalSignature = 14 "Digital Signature",
    }
}

registry! {
    /// The hash function of a signature (RFC 7427 §7, RFC 8420 §2).
    HashAlgorithmId: u16 {
        Sha1 = 1 "SHA1",
        Sha256 = 2 "SHA2-256",
        Sha384 = 3 "SHA2-384",
        Sha512 = 4 "SHA2-512",
        Identity = 5 "Identity",
    }
}

registry! {
    /// The type of a notification: errors below 16384, else status (RFC 7296 §3.10.1).
    NotifyType: u16 {
        UnsupportedCriticalPayload = 1 "UNSUPPORTED_CRITICAL_PAYLOAD",
        InvalidIkeSpi = 4 "INVALID_IKE_SPI",
        InvalidMajorVersion = 5 "INVALID_MAJOR_VERSION",
        InvalidSyntax = 7 "INVALID_SYNTAX",
        InvalidMessageId = 9 "INVALID_MESSAGE_ID",
        InvalidSpi = 11 "INVALID_SPI",
        NoProposalChosen = 14 "NO_PROPOSAL_CHOSEN",
        InvalidKePayload = 17 "INVALID_KE_PAYLOAD",
        AuthenticationFailed = 24 "AUTHENTICATION_FAILED",
        SinglePairRequired = 34 "SINGLE_PAIR_REQUIRED",
        NoAdditionalSas = 35 "NO_ADDITIONAL_SAS",
        InternalAddressFailure = 36 "INTERNAL_ADDRESS_FAILURE",
        FailedCpRequired = 37 "FAILED_CP_REQUIRED",
        TsUnacceptable = 38 "TS_UNACCEPTABLE",
        InvalidSelectors = 39 "INVALID_SELECTORS",
        UnacceptableAddresses = 40 "UNACCEPTABLE_ADDRESSES",
        UnexpectedNatDetected = 41 "UNEXPECTED_NAT_DETECTED",
        TemporaryFailure = 43 "TEMPORARY_FAILURE",
        ChildSaNotFound = 44 "CHILD_SA_NOT_FOUND",
        StateNotFound = 47 "STATE_NOT_FOUND",
        TsMaxQueue = 48 "TS_MAX_QUEUE",
        InitialContact = 16384 "INITIAL_CONTACT",
        SetWindowSize = 16385 "SET_WINDOW_SIZE",
        AdditionalTsPossible = 16386 "ADDITIONAL_TS_POSSIBLE",
        IpcompSupported = 16387 "IPCOMP_SUPPORTED",
        NatDetectionSourceIp = 16388 "NAT_DETECTION_SOURCE_IP",
        NatDetectionDestinationIp = 16389 "NAT_DETECTION_DESTINATION_IP",
        Cookie = 16390 "COOKIE",
        UseTransportMode = 16391 "USE_TRANSPORT_MODE",
        HttpCertLookupSupported = 16392 "HTTP_CERT_LOOKUP_SUPPORTED",
        RekeySa = 16393 "REKEY_SA",
        EspTfcPaddingNotSupported = 16394 "ESP_TFC_PADDING_NOT_SUPPORTED",
        NonFirstFragmentsAlso = 16395 "NON_FIRST_FRAGMENTS_ALSO",
        MobikeSupported = 16396 "MOBIKE_SUPPORTED",
        AdditionalIp4Address = 16397 "ADDITIONAL_IP4_ADDRESS",
        AdditionalIp6Address = 16398 "ADDITIONAL_IP6_ADDRESS",
        NoAdditionalAddresses = 16399 "NO_ADDITIONAL_ADDRESSES",
        UpdateSaAddresses = 16400 "UPDATE_SA_ADDRESSES",
        Cookie2 = 16401 "COOKIE2",
        NoNatsAllowed = 16402 "NO_NATS_ALLOWED",
        AuthLifetime = 16403 "AUTH_LIFETIME",
        MultipleAuthSupported = 16404 "MULTIPLE_AUTH_SUPPORTED",
        RedirectSupported = 16406 "REDIRECT_SUPPORTED",
        EapOnlyAuthentication = 16417 "EAP_ONLY_AUTHENTICATION",
        ChildlessSupported = 16418 "CHILDLESS_IKEV2_SUPPORTED",
        MessageIdSyncSupported = 16420 "IKEV2_MESSAGE_ID_SYNC_SUPPORTED",
        FragmentationSupported = 16430 "IKEV2_FRAGMENTATION_SUPPORTED",
        SignatureHashAlgorithms = 16431 "SIGNATURE_HASH_ALGORITHMS",
        UsePpk = 16435 "USE_PPK",
        PpkIdentity = 16436 "PPK_IDENTITY",
        NoPpkAuth = 16437 "NO_PPK_AUTH",
        IntermediateExchangeSupported = 16438 "INTERMEDIATE_EXCHANGE_SUPPORTED",
        AdditionalKeyExchange = 16441 "ADDITIONAL_KEY_EXCHANGE",
        SaResourceInfo = 16444 "SA_RESOURCE_INFO",
        UsePpkInt = 16445 "USE_PPK_INT",
        PpkIdentityKey = 16446 "PPK_IDENTITY_KEY",
        // for private use, and only beside the vendor ID (docs/qesp.md)
        UseQEsp = 45285 "USE_QESP",
    }
}

impl NotifyType {
    /// Checks whether the notification reports an error (RFC 7296 §3.10.1).
    #[must_use]
    pub fn is_error(self) -> bool {
        u16::from(self) < 16384
    }
}

registry! {
    /// The address family of a traffic selector (RFC 7296 §3.13.1).
    TsType: u8 {
        Ipv4AddressRange = 7 "TS_IPV4_ADDR_RANGE",
        Ipv6AddressRange = 8 "TS_IPV6_ADDR_RANGE",
    }
}

registry! {
    /// The direction of a configuration payload (RFC 7296 §3.15).
    ConfigurationType: u8 {
        Request = 1 "CFG_REQUEST",
        Reply = 2 "CFG_REPLY",
        Set = 3 "CFG_SET",
        Ack = 4 "CFG_ACK",
    }
}

registry! {
    /// An attribute of a configuration payload (RFC 7296 §3.15.1).
    ConfigurationAttributeType: u16 {
        InternalIp4Address = 1 "INTERNAL_IP4_ADDRESS",
        InternalIp4Netmask = 2 "INTERNAL_IP4_NETMASK",
        InternalIp4Dns = 3 "INTERNAL_IP4_DNS",
        InternalIp4Dhcp = 6 "INTERNAL_IP4_DHCP",
        ApplicationVersion = 7 "APPLICATION_VERSION",
        InternalIp6Address = 8 "INTERNAL_IP6_ADDRESS",
        InternalIp6Dns = 10 "INTERNAL_IP6_DNS",
        InternalIp4Subnet = 13 "INTERNAL_IP4_SUBNET",
        InternalIp6Subnet = 15 "INTERNAL_IP6_SUBNET",
    }
}

registry! {
    /// The code of an EAP message (RFC 3748 §4).
    EapCode: u8 {
        Request = 1 "Request",
        Response = 2 "Response",
        Success = 3 "Success",
        Failure = 4 "Failure",
    }
}

impl TransformType {
    /// The additional key exchanges, in order (RFC 9370 §2.2.1).
    pub const ADDITIONAL_KEY_EXCHANGES: [Self; 7] = [
        Self::AdditionalKeyExchange1,
        Self::AdditionalKeyExchange2,
        Self::AdditionalKeyExchange3,
        Self::AdditionalKeyExchange4,
        Self::AdditionalKeyExchange5,
        Self::AdditionalKeyExchange6,
        Self::AdditionalKeyExchange7,
    ];
}
