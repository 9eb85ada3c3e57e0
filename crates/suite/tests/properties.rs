//! What holds of every suite: what was sealed opens, anything else does not.

use headroom_suite::{Bound, Key, Suite, Transform};
use proptest::prelude::*;

fn bind(suite: Suite) -> Box<dyn Transform> {
    let key = Key::generate(suite.key_len()).expect("random numbers");
    let mac_key = Key::generate(suite.mac_key_len()).expect("random numbers");
    let mac_key = (!mac_key.is_empty()).then_some(&mac_key);
    suite.bind(&key, mac_key).expect("keys of the right length")
}

fn any_suite() -> impl Strategy<Value = Suite> {
    proptest::sample::select(Suite::ALL.to_vec())
}

proptest! {
    #[test]
    fn open_undoes_seal(suite in any_suite(), blocks in 0_usize..100, sequence in 1_u64..) {
        let transform = bind(suite);
        let text: Vec<u8> = (0..blocks * suite.block_len()).map(|at| at as u8).collect();
        let mut body = vec![0; suite.iv_len()];
        body.extend(&text);
        body.resize(body.len() + suite.icv_len(), 0);
        let header = [[0xab; 4], (sequence as u32).to_be_bytes()].concat();
        let bound = Bound { header: &header, sequence, extended: true, addresses: &[] };

        prop_assert_eq!(transform.seal(&bound, &mut body), Ok(()));
        let sealed = body[suite.iv_len()..][..text.len()].to_vec();
        prop_assert!(text.is_empty() || (sealed != text) == suite.encrypts());
        prop_assert_eq!(transform.open(&bound, &mut body), Ok(()));
        prop_assert_eq!(&body[suite.iv_len()..][..text.len()], text);
    }
}
