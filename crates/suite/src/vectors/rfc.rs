//! The examples of the RFCs that the suites implement.

use super::{bytes, check_cbc};
use crate::{AadInput, Aead, Authenticator, Cipher, Forged, Key, Mac, Suite};

/// RFC 3602 §4, cases 1 to 4.
#[test]
fn aes_cbc() {
    let count: Vec<u8> = (0..32).collect();
    let high: Vec<u8> = (0xa0..0xe0).collect();
    let cases: [(&str, &str, &[u8], &str); 4] = [
        (
            "06a9214036b8a15b512e03d534120006",
            "3dafba429d9eb430b422da802c9fac41",
            b"Single block msg",
            "e353779c1079aeb82708942dbe77181a",
        ),
        (
            "c286696d887c9aa0611bbb3e2025a45a",
            "562e17996d093d28ddb3ba695a2e6f58",
            &count,
            "d296cd94c2cccf8a3a863028b5e1dc0a 7586602d253cfff91b8266bea6d61ab1",
        ),
        (
            "6c3ea0477630ce21a2ce334aa746c2cd",
            "c782dc4c098c66cbd9cd27d825682c81",
            b"This is a 48-byte message (exactly 3 AES blocks)",
            "d0a02b3836451753d493665d33f0e886 2dea54cdb293abc7506939276772f8d5
             021c19216bad525c8579695d83ba2684",
        ),
        (
            "56e47a38c5598974bc46903dba290349",
            "8ce82eefbea0da3c44699ed7db51b7d9",
            &high,
            "c30e32ffedc0774e6aff6af0869f71aa 0f3af07a9a31a9c684db207eb0ef8e4e
             35907aa632c3ffdf868bb7b29d3d46ad 83ce9f9a102ee99d49a53e87f4c3da55",
        ),
    ];
    for (key, iv, plain, secret) in cases {
        check_cbc(Cipher::Aes128Cbc, &bytes(key), &bytes(iv), plain, &bytes(secret));
    }
}

/// RFC 7634, Appendix A: the whole body, as it stands behind the ESP header.
#[test]
fn chacha20_poly1305() {
    let key: Vec<u8> = (0x80..=0xa3).collect();
    let plain = bytes(
        "45000054a6f20000 4001e778c6336405 c000020508005b7a 3a080000553bec10
         0007362708090a0b 0c0d0e0f10111213 1415161718191a1b 1c1d1e1f20212223
         2425262728292a2b 2c2d2e2f30313233 3435363701020204",
    );
    let mut body = bytes(
        "1011121314151617
         24039428b97f417e 3c13753a4f05087b 67c352e6a7fab1b9 82d466ef407ae5c6
         14ee8099d52844eb 61aa95dfab4c02f7 2aa71e7c4c4f64c9 befe2facc638e8f3
         cbec163fac469b50 2773f6fb94e664da 9165b82829f641e0
         76aaa8266b7fb0f7 b11b369907e1ad43",
    );
    let transform = Suite::Aead(Aead::ChaCha20Poly1305)
        .bind(&Key::from_bytes(&key), None)
        .expect("a key of the right length");
    let header = [1, 2, 3, 4, 0, 0, 0, 5];
    let aad = AadInput { header: &header, sequence: 5, extended: false, addresses: &[] };
    assert_eq!(transform.open(&aad, &mut body), Ok(()));
    assert_eq!(body[8..][..plain.len()], plain);
}

/// draft-mcgrew-gcm-test-01, the first two packets: with an extended sequence
/// number, whose high half stands ahead of the low one, and without.
#[test]
fn aes_gcm() {
    let extended = bytes(
        "4956ed7e3b244cfe
         fecf537e729d5b07 dc30df528dd22b76 8d1b98736696a6fd 348509fa13ceac34
         cfa2436f14a3f3cf 65925bf1f4a13c5d 15b21e1884f5ff62 47aeabb786b93bce
         61bc17d768fd9732 459018148f6cbe72 2fd04796562dfdb4",
    );
    let plain = bytes(
        "45000048699a0000 80114db7c0a80102 c0a801010a9bf156 38d3010000010000
         00000000045f7369 70045f7564700373 6970096379626572 6369747902646b00
         0021000101020201",
    );
    let short = bytes(
        "facedbaddecaf888
         deb22cd9b07c72c1 6e3a65beeb8df304 a5a5897d33ae530f 1ba76d5d114d2a5c
         3de81827c10e9a4f 51330d0eec416642 cfbb85a5b47e48a4 ec3b9ba95d918bd1
         83b70d3aa8bc6ee4 c309e9d85a41ad4a",
    );
    let open = |key: &str, header: &str, sequence, extended, body: &mut [u8]| {
        let transform = Suite::Aead(Aead::Aes128Gcm)
            .bind(&Key::from_bytes(&bytes(key)), None)
            .expect("a key of the right length");
        let header = bytes(header);
        transform.open(&AadInput { header: &header, sequence, extended, addresses: &[] }, body)
    };
    let key = "4c80cdefbb5d10da906ac73c3613a634 2e443b68";
    let mut body = extended.clone();
    assert_eq!(open(key, "00004321 00000000", 0x8765_4321 << 32, true, &mut body), Ok(()));
    assert_eq!(body[8..][..plain.len()], plain);
    let mut body = short.clone();
    let key = "feffe9928665731c6d6a8f9467308308 cafebabe";
    assert_eq!(open(key, "0000a5f8 0000000a", 10, false, &mut body), Ok(()));
    assert_eq!(body[8..][..4], bytes("4500003e"));
}

/// RFC 2202 for HMAC-MD5 and HMAC-SHA1, RFC 4231 for HMAC-SHA-2.
#[test]
fn hmac() {
    let counted: Vec<u8> = (1..=25).collect();
    let with_sha2_and_without: [(&[u8], &[u8], [&str; 5]); 3] = [
        (
            b"Jefe",
            b"what do ya want for nothing?",
            [
                "750c783e6ab0b503eaa86e310a5db738",
                "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e
                 8e2240ca5e69e2c78b3239ecfab21649",
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554
                 9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
            ],
        ),
        (
            &counted,
            &[0xcd; 50],
            [
                "697eaf0aca3a3aea3a75164746ffaa79",
                "4c9007f4026250c6bc8414f9bf50c86c2d7235da",
                "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
                "3e8a69b7783c25851933ab6290af6ca77a9981480850009cc5577c6e1f573b4e
                 6801dd23c4a7d679ccf8a386c674cffb",
                "b0ba465637458c6990e5a8c5f61d4af7e576d97ff94b872de76f8050361ee3db
                 a91ca5c11aa25eb4d679275cc5788063a5f19741120c4f2de2adebeb10a298dd",
            ],
        ),
        (
            &[0x0b; 20],
            b"Hi There",
            [
                "",
                "b617318655057264e28bc0b6fb378c8ef146be00",
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
                "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59c
                 faea9ea9076ede7f4af152e8b2fa9cb6",
                "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde
                 daa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854",
            ],
        ),
    ];
    for (key, text, digests) in with_sha2_and_without {
        for (mac, digest) in Mac::ALL.into_iter().zip(digests) {
            if !digest.is_empty() {
                check_hmac(mac, key, text, digest);
            }
        }
    }
    let larger_key = b"Test Using Larger Than Block-Size Key - Hash Key First";
    let larger_both = b"Test Using Larger Than Block-Size Key and Larger Than One Block-Size Data";
    let sha2_both = b"This is a test using a larger than block-size key and a larger \
        than block-size data. The key needs to be hashed before being used by the HMAC algorithm.";
    #[rustfmt::skip]
    let rest: [(Mac, &[u8], &[u8], &str); 21] = [
        (Mac::HmacMd5, &[0x0b; 16], b"Hi There", "9294727a3638bb1c13f48ef8158bfc9d"),
        (Mac::HmacMd5, &[0xaa; 16], &[0xdd; 50], "56be34521d144c88dbb8c733f0e8b3f6"),
        (Mac::HmacMd5, &[0x0c; 16], b"Test With Truncation", "56461ef2342edc00f9bab995690efd4c"),
        (Mac::HmacMd5, &[0xaa; 80], larger_key, "6b1ab7fe4bd7bf8f0b62e6ce61b9d0cd"),
        (Mac::HmacMd5, &[0xaa; 80], larger_both, "6f630fad67cda0ee1fb1f562db3aa53e"),
        (Mac::HmacSha1, &[0xaa; 20], &[0xdd; 50], "125d7342b9ac11cd91a39af48aa17b4f63f175d3"),
        (Mac::HmacSha1, &[0x0c; 20], b"Test With Truncation", "4c1a03424b55e07fe7f27be1d58bb9324a9a5a04"),
        (Mac::HmacSha1, &[0xaa; 80], larger_key, "aa4ae5e15272d00e95705637ce8a3b55ed402112"),
        (Mac::HmacSha1, &[0xaa; 80], larger_both, "e8e99d0f45237d786d6bbaa7965c7808bbff1a91"),
        (Mac::HmacSha256, &[0xaa; 20], &[0xdd; 50], "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
        (Mac::HmacSha384, &[0xaa; 20], &[0xdd; 50], "88062608d3e6ad8a0aa2ace014c8a86f0aa635d947ac9febe83ef4e55966144b2a5ab39dc13814b94e3ab6e101a34f27"),
        (Mac::HmacSha512, &[0xaa; 20], &[0xdd; 50], "fa73b0089d56a284efb0f0756c890be9b1b5dbdd8ee81a3655f83e33b2279d39bf3e848279a722c806b485a47e67c807b946a337bee8942674278859e13292fb"),
        (Mac::HmacSha256, &[0x0c; 20], b"Test With Truncation", "a3b6167473100ee06e0c796c2955552b"),
        (Mac::HmacSha384, &[0x0c; 20], b"Test With Truncation", "3abf34c3503b2a23a46efc619baef897"),
        (Mac::HmacSha512, &[0x0c; 20], b"Test With Truncation", "415fad6271580a531d4179bc891d87a6"),
        (Mac::HmacSha256, &[0xaa; 131], larger_key, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"),
        (Mac::HmacSha384, &[0xaa; 131], larger_key, "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c60c2ef6ab4030fe8296248df163f44952"),
        (Mac::HmacSha512, &[0xaa; 131], larger_key, "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f3526b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598"),
        (Mac::HmacSha256, &[0xaa; 131], sha2_both, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"),
        (Mac::HmacSha384, &[0xaa; 131], sha2_both, "6617178e941f020d351e2f254e8fd32c602420feb0b8fb9adccebb82461e99c5a678cc31e799176d3860e6110c46523e"),
        (Mac::HmacSha512, &[0xaa; 131], sha2_both, "e37b6a775dc87dbaa4dfa9f96e5e3ffddebd71f8867289865df5a32d20cdc944b6022cac3c4982b10d5eeb55c3e4de15134676fb6de0446065c97440fa8c6a58"),
    ];
    for (mac, key, text, digest) in rest {
        check_hmac(mac, key, text, digest);
    }
}

/// `digest` may be cut: RFC 4231's case 5 is.
fn check_hmac(mac: Mac, key: &[u8], text: &[u8], digest: &str) {
    let digest = bytes(digest);
    let authenticator = Authenticator::new(mac, key).expect("any length is taken");
    // In parts of several lengths, as a packet comes.
    let middle = text.len() / 3;
    let parts = [&text[..middle], &[], &text[middle..]];
    authenticator.digest(&parts, |found| assert_eq!(found[..digest.len()], digest, "{mac}"));

    let Some(icv) = digest.get(..mac.icv_len()) else { return };
    let mut signed = vec![0; mac.icv_len()];
    authenticator.sign(&parts, &mut signed);
    assert_eq!(signed, icv, "{mac}");
    assert_eq!(authenticator.verify(&parts, icv), Ok(()));
    // Neither a shorter ICV nor a longer one is this algorithm's.
    for len in (0..=digest.len()).filter(|len| *len != icv.len()) {
        assert_eq!(authenticator.verify(&parts, &digest[..len]), Err(Forged), "{mac}, {len}");
    }
    for bit in 0..icv.len() * 8 {
        signed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(authenticator.verify(&parts, &signed), Err(Forged), "{mac}, bit {bit}");
        signed[bit / 8] ^= 1 << (bit % 8);
    }
}
