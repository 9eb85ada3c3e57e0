//! Algorithms as transforms (RFC 7296 §3.3.2).

use headroom_suite::{Aead, Cipher, Mac, Suite};

use crate::crypto::Method;
use crate::wire::{EncryptionId, IntegrityId, SequenceNumbersId, Transform, TransformType};

pub(super) fn suite_transforms(suites: &[Suite]) -> Vec<Transform> {
    suites
        .iter()
        .flat_map(|&suite| {
            let (encryption, integrity) = transforms_of(suite);
            [encryption].into_iter().chain(integrity)
        })
        .collect()
}

pub(super) fn transforms_of(suite: Suite) -> (Transform, Option<Transform>) {
    let kind = TransformType::Encryption;
    let keyed = |id, bits| Transform::with_key_length(kind, id, bits);
    match suite {
        Suite::Aead(aead) => {
            let gcm = EncryptionId::AesGcm16;
            let encryption = match aead {
                Aead::Aes128Gcm => keyed(gcm, 128),
                Aead::Aes192Gcm => keyed(gcm, 192),
                Aead::Aes256Gcm => keyed(gcm, 256),
                Aead::ChaCha20Poly1305 => Transform::new(kind, EncryptionId::ChaCha20Poly1305),
            };
            (encryption, None)
        }
        Suite::Separate(cipher, mac) => {
            let cbc = EncryptionId::AesCbc;
            let encryption = match cipher {
                Cipher::Aes128Cbc => keyed(cbc, 128),
                Cipher::Aes192Cbc => keyed(cbc, 192),
                Cipher::Aes256Cbc => keyed(cbc, 256),
                Cipher::TripleDesCbc => Transform::new(kind, EncryptionId::TripleDes),
                Cipher::DesCbc => Transform::new(kind, 2_u16),
                Cipher::Null => Transform::new(kind, EncryptionId::Null),
            };
            let integrity = match mac {
                Mac::HmacMd5 => IntegrityId::HmacMd5,
                Mac::HmacSha1 => IntegrityId::HmacSha1,
                Mac::HmacSha256 => IntegrityId::HmacSha256,
                Mac::HmacSha384 => IntegrityId::HmacSha384,
                Mac::HmacSha512 => IntegrityId::HmacSha512,
            };
            (encryption, Some(Transform::new(TransformType::Integrity, integrity)))
        }
    }
}

pub(super) fn method_transforms(
    key_exchanges: &[Method],
    additional: &[Vec<Method>],
) -> Vec<Transform> {
    let types =
        [TransformType::KeyExchange].into_iter().chain(TransformType::ADDITIONAL_KEY_EXCHANGES);
    let lists = [key_exchanges].into_iter().chain(additional.iter().map(Vec::as_slice));
    let transforms = types.zip(lists).flat_map(|(kind, methods)| {
        methods.iter().map(move |method| Transform::new(kind, method.id()))
    });
    transforms.collect()
}

pub(super) fn sequence_numbers(extended: bool) -> Transform {
    let id = match extended {
        true => SequenceNumbersId::Sequential64,
        false => SequenceNumbersId::Sequential32,
    };
    Transform::new(TransformType::SequenceNumbers, id)
}
