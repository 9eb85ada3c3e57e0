//! Control messages (cmsg(3)), written to and read from an aligned buffer; every length is checked.

use std::mem::{offset_of, size_of};

const HEADER: usize = size_of::<libc::cmsghdr>();
const ALIGN: usize = size_of::<usize>();

/// A buffer of `WORDS` × 8 bytes for the control messages of one packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Control<const WORDS: usize> {
    words: [u64; WORDS],
    len: usize,
}

impl<const WORDS: usize> Control<WORDS> {
    /// The capacity in bytes.
    pub(crate) const CAPACITY: usize = WORDS * size_of::<u64>();

    /// An empty buffer.
    pub(crate) const fn new() -> Self {
        Self { words: [0; WORDS], len: 0 }
    }

    /// Returns the address where the kernel reads or writes the messages.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::c_void {
        self.words.as_mut_ptr().cast()
    }

    /// Returns the bytes of messages in the buffer.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Sets the number of bytes that the kernel has written.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len.min(Self::CAPACITY);
    }

    /// Adds a message. `WORDS` must be large enough for all messages: a message that does not fit
    /// is an error in this crate.
    pub(crate) fn push(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        let (at, total) = (self.len, HEADER + data.len());
        let bytes = self.bytes_mut();
        let message = &mut bytes[at..][..total];
        message[..HEADER].fill(0);
        message[offset_of!(libc::cmsghdr, cmsg_len)..][..size_of::<usize>()]
            .copy_from_slice(&total.to_ne_bytes());
        message[offset_of!(libc::cmsghdr, cmsg_level)..][..4].copy_from_slice(&level.to_ne_bytes());
        message[offset_of!(libc::cmsghdr, cmsg_type)..][..4].copy_from_slice(&kind.to_ne_bytes());
        message[HEADER..].copy_from_slice(data);
        self.len = (at + total).next_multiple_of(ALIGN).min(Self::CAPACITY);
    }

    /// Returns the messages as (level, type, data), up to the first with an invalid length.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (libc::c_int, libc::c_int, &[u8])> {
        let mut rest = &self.bytes()[..self.len];
        std::iter::from_fn(move || {
            let total = usize::from_ne_bytes(field(rest, offset_of!(libc::cmsghdr, cmsg_len))?);
            if total < HEADER || total > rest.len() {
                return None;
            }
            let level = i32::from_ne_bytes(field(rest, offset_of!(libc::cmsghdr, cmsg_level))?);
            let kind = i32::from_ne_bytes(field(rest, offset_of!(libc::cmsghdr, cmsg_type))?);
            let data = &rest[HEADER..total];
            rest = &rest[total.next_multiple_of(ALIGN).min(rest.len())..];
            Some((level, kind, data))
        })
    }

    /// Returns the messages in these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut control = Self::new();
        let len = bytes.len().min(Self::CAPACITY);
        control.bytes_mut()[..len].copy_from_slice(&bytes[..len]);
        control.set_len(len);
        control
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: an array of u64 consists of initialised bytes, and u8 needs no alignment; the
        // borrow of `self` covers the lifetime of the result.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), Self::CAPACITY) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; any bytes are a valid u64, and the mutable borrow of `self` makes this
        // the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), Self::CAPACITY) }
    }
}

/// Returns `N` bytes at `at`, if they exist.
pub(crate) fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_pushed_messages() {
        let mut control = Control::<16>::new();
        control.push(1, 2, &[3; 4]);
        control.push(5, 6, &[7; 12]);
        let messages: Vec<_> = control.messages().collect();
        assert_eq!(messages, [(1, 2, &[3; 4][..]), (5, 6, &[7; 12][..])]);
    }

    #[test]
    fn a_message_that_lies_about_its_length_ends_the_list() {
        for lie in [0, 1, 15, 25, 1000, u64::MAX] {
            let mut control = Control::<16>::new();
            control.push(1, 2, &[3; 4]);
            control.words[0] = lie;
            assert!(control.messages().next().is_none(), "{lie}");
        }
        let mut control = Control::<16>::new();
        control.push(1, 2, &[3; 4]);
        control.set_len(7);
        assert_eq!(control.messages().count(), 0);
    }
}
